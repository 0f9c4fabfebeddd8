"""What a world starts from, who acts in it, and which of the checks apply."""

from __future__ import annotations

from dataclasses import dataclass

from .memory import Key, Row
from .process import Call, Hit, Machine
from .rules import Rules


@dataclass(frozen=True, slots=True)
class Before:
    """A call made alone before the exploration; with `dies_at`, by a process killed before that
    step."""

    clock: int
    call: Call
    dies_at: str = "DONE"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    keys: tuple[Key, ...]
    programs: tuple[tuple[Call, ...], ...]  # one a process; equal ones adjacent
    slots: int
    clock: tuple[int, ...]  # ticks: the values it passes through, at any moment
    before: tuple[Before, ...] = ()
    kills: int = 0  # processes that may be killed
    split_reads: bool = False
    row: Row | None = None
    salts: int = 1
    long: bool = False  # minutes and gigabytes: only on demand
    # Checks that need more than every scenario offers:
    lossless: tuple[int, ...] = ()  # keys that are never evicted and always find a slot
    conserves: bool = False  # a frozen clock: the slots hold the debt of everything admitted
    crowded: bool = False  # newcomers of other keys take the slots a clear counted on

    def __post_init__(self) -> None:
        first_uses = list(dict.fromkeys(self.programs))
        adjacent = sorted(self.programs, key=first_uses.index)
        if tuple(adjacent) != self.programs:
            raise ValueError(f"{self.name}: equal programs must stand side by side")

    def machine(self, rules: Rules) -> Machine:
        """The programs of the processes, of the calls before, and last of one probe a key."""
        return Machine(
            self.keys,
            (
                *self.programs,
                *((before.call,) for before in self.before),
                *((Hit(key),) for key in range(len(self.keys))),
            ),
            rules,
            self.salts,
            self.split_reads,
        )
