"""A clear, as slots_clear in pyx/slots.h: each function is one step, named by the step's pc."""

from __future__ import annotations

from .memory import ABANDONED, FP_FIRST, Memory, Word, claimed, is_committed, is_dead
from .process import Event, Machine, Process, Step, cas, next_call

USABLE_MIN = 2  # dead candidates that a clear must leave to its key


def clear_read_clock(machine: Machine, p: Process, memory: Memory, clock: int) -> Step:
    """READ_CLOCK"""
    return Step(again(p._replace(now=clock)), memory)


def again(p: Process) -> Process:
    return Process(
        "CLEAR_SCAN", p.program, p.call, p.key, p.now, forgave=p.forgave, absent=p.absent
    )


def clear_scan(machine: Machine, p: Process, memory: Memory) -> Step:
    """CLEAR_SCAN: reads one candidate, in order, all of them, for slots of the key."""
    key = machine.keys[p.key]
    word = memory.slots[key.candidates[p.at]]
    if machine.split_reads:
        if p.half < 0:
            return Step(p._replace(half=word[1]), memory)
        word = (word[0], p.half)
    matches, unusable = p.matches, p.unusable
    if word[0] == FP_FIRST + p.key:
        matches = (*matches, (p.at, word))
    if not machine.rules.clear_counts_after_match:
        unusable += not is_usable(machine, p, word)
    if p.at + 1 < len(key.candidates):
        return Step(p._replace(at=p.at + 1, half=-1, matches=matches, unusable=unusable), memory)
    if not matches:
        return answered(machine, p, memory, "cleared")
    p = p._replace(pc="CLEAR_COUNT", at=0, half=-1, matches=matches, unusable=unusable)
    if machine.rules.clear_counts_after_match:
        return Step(p, memory)
    return counted(machine, p, memory)


def clear_count(machine: Machine, p: Process, memory: Memory) -> Step:
    """CLEAR_COUNT: reads v of one candidate, in order, all of them: is it usable?

    After the matches were read: if one of them is still there when it is abandoned, no other clear
    of the key has used up a candidate since. v alone tells whether a slot is dead.
    """
    key = machine.keys[p.key]
    word = memory.slots[key.candidates[p.at]]
    p = p._replace(unusable=p.unusable + (not is_usable(machine, p, word)))
    if p.at + 1 < len(key.candidates):
        return Step(p._replace(at=p.at + 1), memory)
    return counted(machine, p, memory)


def is_usable(machine: Machine, p: Process, word: Word) -> bool:
    """Whether the key can claim this slot once its own ones are abandoned: a dead one. A live
    stranger is none: it might not be evictable, and hands over its debt if it is."""
    if machine.rules.clear_counts_strangers:
        return is_dead(word, p.now)
    return is_dead(word, p.now) or word[0] not in (ABANDONED, FP_FIRST + p.key)


def counted(machine: Machine, p: Process, memory: Memory) -> Step:
    if p.unusable > len(machine.keys[p.key].candidates) - USABLE_MIN:
        return answered(machine, p, memory, "set_full")
    return Step(p._replace(pc="CAS_ABANDON", at=0, unusable=0), memory)


def answered(machine: Machine, p: Process, memory: Memory, kind: str) -> Step:
    event = Event(kind, p.key, p.now, forgave=p.forgave, absent=p.absent)
    return Step(next_call(machine, p, memory), memory, (event,))


def cas_abandon(machine: Machine, p: Process, memory: Memory) -> Step:
    """CAS_ABANDON: one match. The slot dies by its own state."""
    (i, word), *others = p.matches
    after = cas(machine, memory, p, i, word, claimed(ABANDONED, word))
    events: tuple[Event, ...] = ()
    if after is None:
        p = p._replace(lost=True)
    elif is_committed(word):
        events = (Event("forgiven", p.key, p.now, forgave=p.forgave),)
        p = p._replace(forgave=True)
    memory = after or memory
    if others:
        return Step(p._replace(matches=tuple(others)), memory, events)
    if p.lost and not (p.forgave and machine.rules.clear_once):
        return Step(again(p), memory, events)
    step = answered(machine, p, memory, "cleared")
    return step._replace(events=events + step.events)
