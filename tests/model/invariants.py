"""What must hold of every step and of every memory, told from outside of the protocol's code."""

from __future__ import annotations

from .memory import FP_FIRST, Key, Memory, is_committed, is_dead, state_of, stepped
from .process import Event, Machine, Process, Step
from .violation import Violation


def check_step(machine: Machine, p: Process, before: Memory, step: Step, clock: int) -> None:
    for slot, (old, new) in enumerate(zip(before.slots, step.memory.slots, strict=True)):
        if old == new:
            continue
        if new[1] <= old[1]:
            raise Violation(f"(M): {p.pc} wrote v {old[1]} -> {new[1]} in slot {slot}")
        if p.pc == "CAS_CLAIM" and not is_dead(old, clock):
            raise Violation(f"(D): slot {slot} was claimed alive")
    for event in step.events:
        check_event(machine, before, event)


def check_event(machine: Machine, before: Memory, event: Event) -> None:
    if event.kind == "full":
        check_full(machine.keys[event.key], FP_FIRST + event.key, before, event)
    if event.kind == "forgiven" and event.forgave:
        raise Violation("clear: one clear forgave twice")
    if event.kind == "set_full" and event.forgave:
        raise Violation("clear: answered set_full after it had forgiven")
    if event.kind == "cleared" and not (event.forgave or event.absent):
        raise Violation("clear: answered cleared, forgave nothing, and the key was never absent")


def check_full(key: Key, fp: int, memory: Memory, event: Event) -> None:
    """A scan is not one moment, but states only rise: what did not qualify when it was read does
    not qualify at its end. Only the key itself may have got a slot meanwhile."""
    words = [memory.slots[slot] for slot in key.candidates]
    if any(word[0] == fp for word in words):
        return
    for word in words:
        if is_dead(word, event.now) or fits(key, word, event.now, event.cells):
            raise Violation(f"full: {key.name} was denied although {word} qualified")


def fits(key: Key, word: tuple[int, int], now: int, cells: int) -> bool:
    """Whether `key` would be admitted in the live slot of another key."""
    evicts = key.limit.when_full == "evict"
    return evicts and stepped(key.limit, state_of(word) + 1, now, cells) is not None


def check_memory(machine: Machine, memory: Memory) -> None:
    holders = [word[0] for word in memory.slots if is_committed(word)]
    for fp in set(holders):
        if holders.count(fp) > 1:
            name = machine.keys[fp - FP_FIRST].name
            raise Violation(f"single: {name} has {holders.count(fp)} committed slots")


def is_absent(memory: Memory, fp: int, now: int) -> bool:
    """Whether the key owes nothing: a clear at this moment would have nothing to forgive."""
    return not any(
        word[0] == fp and is_committed(word) and not is_dead(word, now) for word in memory.slots
    )


def debt(memory: Memory, now: int) -> int:
    """Ticks that the slots run ahead of now, summed."""
    return sum(max(0, state_of(word) - now) for word in memory.slots)
