"""One process of the model: its program, where it stands in it, and what a step gives back."""

from __future__ import annotations

from typing import NamedTuple

from .memory import Key, Memory, Word
from .rules import Rules

Found = tuple[int, Word]
"""A candidate (index in the key's order) and the word that was read there."""


class Hit(NamedTuple):
    key: int  # index into the world's keys, of the key under salt 0
    cells: int = 1


class Clear(NamedTuple):
    key: int


class Reset(NamedTuple):
    """Publishes a limit row with the next salt."""

    salt: int
    interval: int  # ticks: the T that goes with it


Call = Hit | Clear | Reset


class Scan(NamedTuple):
    """What a scan must remember for what follows it, and no more: with a twin neither dead slots
    nor victims matter, with a dead slot no victim."""

    twins: tuple[Found, ...] = ()
    dead: tuple[Found, ...] = ()
    victim: Found | None = None  # the best so far


NOTHING = Scan()
NO_WORD: Word = (-1, -1)


class Process(NamedTuple):
    """Where a process stands. Fields that no later step depends on are at their defaults, so that
    equal futures are equal states."""

    pc: str  # the step that comes next
    program: int
    call: int = 0  # index into the program
    key: int = -1  # index into the world's keys, once the salt is known
    now: int = 0  # the clock reading in use
    hint: int = 0  # the candidate that is read first
    at: int = 0  # SCAN: slots read so far. CAS: the candidate. ROW: words done
    half: int = -1  # SCAN with split reads: the v that was read
    seen: Scan = NOTHING
    expected: Word = NO_WORD
    desired: Word = NO_WORD
    matches: tuple[Found, ...] = ()  # CAS_KILL, CLEAR: still to be written
    unusable: int = 0  # CLEAR_SCAN: candidates the key could not claim afterwards
    lost: bool = False  # CLEAR: a CAS of this pass failed
    forgave: bool = False  # CLEAR: this call has abandoned a committed slot
    absent: bool = False  # CLEAR, ghost: at some moment of this call the key had no live debt
    words: tuple[int, ...] = ()  # ROW: what was read


class Event(NamedTuple):
    """What the world must know of a step."""

    kind: str  # "admitted" | "denied" | "full" | "forgiven" | "evicted" | "cleared" | "set_full"
    key: int
    now: int = 0  # ticks: the reading that decided
    cells: int = 0
    # Of a clear, so far:
    forgave: bool = False
    absent: bool = False


class Step(NamedTuple):
    process: Process
    memory: Memory
    events: tuple[Event, ...] = ()


class Machine(NamedTuple):
    """What never changes while a world is explored."""

    keys: tuple[Key, ...]
    programs: tuple[tuple[Call, ...], ...]
    rules: Rules
    salts: int = 1  # key k under salt s is keys[k + s * (len(keys) // salts)]
    split_reads: bool = False

    def hit_of(self, p: Process) -> Hit:
        call = self.programs[p.program][p.call]
        assert isinstance(call, Hit)
        return call


def next_call(machine: Machine, p: Process, memory: Memory) -> Process:
    """The process after its call has returned."""
    return start_call(machine, p.program, p.call + 1, memory)


def start_call(machine: Machine, program: int, call: int, memory: Memory) -> Process:
    calls = machine.programs[program]
    if call == len(calls):
        return Process("DONE", program)
    started = calls[call]
    if isinstance(started, Reset):
        return Process("ROW_WRITE", program, call)
    if memory.row is not None:
        return Process("ROW_READ", program, call)
    return Process("READ_CLOCK", program, call, started.key)


def killed(p: Process) -> Process:
    return Process("KILLED", p.program)


def ended(p: Process) -> bool:
    return p.pc in ("DONE", "KILLED")


def cas(
    machine: Machine, memory: Memory, p: Process, at: int, old: Word, new: Word
) -> Memory | None:
    """The memory after a compare-and-swap of candidate `at`; None when it failed."""
    slot = machine.keys[p.key].candidates[at]
    slots = memory.slots
    if slots[slot] != old:
        return None
    return memory._replace(slots=(*slots[:slot], new, *slots[slot + 1 :]))
