"""Agents under test: which there are of a limiter, and which of them works."""

from __future__ import annotations

import os
from pathlib import Path

from shmlimit.limiter import Limiter


def titles() -> dict[int, str]:
    """What every process calls itself, by pid."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            found[int(entry)] = command.rstrip(b"\0").replace(b"\0", b" ").decode()
    return found


def agents_of(name: str) -> dict[int, str]:
    """The live agents of that limiter, each with its title; one that has just been executed has its
    command line yet."""
    quoted = f'"name": "{name}"'
    return {
        pid: title
        for pid, title in titles().items()
        if title in (f"shmlimit: agent {name}", f"shmlimit: agent {name}, waiting")
        or ("shmlimit.agent.life" in title and quoted in title)
    }


def working(name: str) -> list[int]:
    return [pid for pid, title in agents_of(name).items() if title == f"shmlimit: agent {name}"]


def is_paired(name: str) -> bool:
    """Whether one works and one waits, as both say."""
    found = sorted(agents_of(name).values())
    return found == [f"shmlimit: agent {name}", f"shmlimit: agent {name}, waiting"]


def beats(limiter: Limiter) -> bool:
    """Whether the agent that the table names is alive to tell."""
    age_s = limiter.hosts.heartbeat_age
    return age_s is not None and age_s < 2
