"""What an agent is told when it is started, as one argument of its command line."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Self

from shmlimit.process import process_start_ticks


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told from a later one of the same pid."""

    pid: int
    start_ticks: int  # kernel clock ticks since boot

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """None when there is none."""
        start_ticks = process_start_ticks(pid)
        return None if start_ticks is None else cls(pid, start_ticks)


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Agents come in pairs: the leader works, or waits for another pair's to end; the follower
    takes its place when it dies, and starts a follower of its own."""

    descriptor: int  # of the segment's file, with no lock on it
    name: str  # the limiter's
    owner: int  # uid of the segment's owner
    config: str  # path of shmlimit.toml
    master: ProcessId  # at whose end agents end
    leader: ProcessId | None = None  # None: this one leads
    short_lives: int = 0  # leaders before that died soon after they had begun, one after the other
    log_file: str | None = None  # None: standard error
    log_level: str = "info"

    def as_text(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Self:
        fields = json.loads(text)
        for name in ("master", "leader"):
            if fields[name] is not None:
                fields[name] = ProcessId(**fields[name])
        return cls(**fields)
