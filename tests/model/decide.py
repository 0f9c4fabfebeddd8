"""A hit, as slots_decide in pyx/slots.h: each function is one step, named by the step's pc."""

from __future__ import annotations

from .memory import (
    EMPTY,
    FP_FIRST,
    Memory,
    Word,
    claimed,
    committed,
    is_committed,
    is_dead,
    state_of,
    stepped,
)
from .process import NO_WORD, NOTHING, Event, Found, Machine, Process, Scan, Step, cas, next_call

# ---- reading -------------------------------------------------------------------------------


def read_clock(machine: Machine, p: Process, memory: Memory, clock: int) -> Step:
    """READ_CLOCK: the outermost call reads the clock once."""
    return Step(rescan(p._replace(now=clock), hint=0), memory)


def rescan(p: Process, hint: int) -> Process:
    """The next pass of the retry loop."""
    return Process("SCAN", p.program, p.call, p.key, p.now, hint)


def scan(machine: Machine, p: Process, memory: Memory) -> Step:
    """SCAN: reads one candidate: `hint` first, the others in order, until a committed match."""
    key = machine.keys[p.key]
    i = p.at
    if machine.rules.own_slot_first:
        i = p.hint if p.at == 0 else p.at - 1 if p.at <= p.hint else p.at
    word = memory.slots[key.candidates[i]]
    if machine.split_reads:
        if p.half < 0:
            return Step(p._replace(half=word[1]), memory)
        word = (word[0], p.half)
    if word[0] == FP_FIRST + p.key and is_committed(word):
        return matched(machine, p, memory, i, word)
    seen = noted(machine, p, i, word)
    if p.at + 1 < len(key.candidates):
        return Step(p._replace(at=p.at + 1, half=-1, seen=seen), memory)
    return scanned(machine, p._replace(at=0, half=-1, seen=NOTHING), memory, seen)


def noted(machine: Machine, p: Process, i: int, word: Word) -> Scan:
    """What is known after candidate `i` as well."""
    seen = p.seen
    if word[0] == FP_FIRST + p.key:
        return Scan(twins=tuple(sorted((*seen.twins, (i, word)))))
    if seen.twins:
        return seen
    if is_dead(word, p.now):
        return Scan(dead=tuple(sorted((*seen.dead, (i, word)))))
    if seen.dead or not is_victim(machine, p, word):
        return seen
    return Scan(victim=min(seen.victim or (i, word), (i, word), key=victim_rank))


def is_victim(machine: Machine, p: Process, word: Word) -> bool:
    """Whether the call would be admitted with the debt it takes over."""
    limit = machine.keys[p.key].limit
    carried = state_of(word) + machine.rules.victim_carries_claim
    cells = machine.hit_of(p).cells
    return limit.when_full == "evict" and stepped(limit, carried, p.now, cells) is not None


def victim_rank(found: Found) -> tuple[bool, int, int]:
    """Committed ones first, then the smallest debt, then the lowest index."""
    i, word = found
    return not is_committed(word), word[1], i


# ---- what a scan leads to ------------------------------------------------------------------


def matched(machine: Machine, p: Process, memory: Memory, i: int, word: Word) -> Step:
    """The key has its slot: step it. A denial writes nothing."""
    hit = machine.hit_of(p)
    new = stepped(machine.keys[p.key].limit, state_of(word), p.now, hit.cells)
    p = Process("CAS_STEP", p.program, p.call, p.key, p.now, p.hint, i, expected=word)
    if new is not None:
        return Step(p._replace(desired=committed(word[0], new)), memory)
    if machine.split_reads:
        return Step(p._replace(pc="RECHECK"), memory)
    return denied(machine, p, memory)


def denied(machine: Machine, p: Process, memory: Memory, kind: str = "denied") -> Step:
    event = Event(kind, p.key, p.now, machine.hit_of(p).cells)
    return Step(next_call(machine, p, memory), memory, (event,))


def admitted(machine: Machine, p: Process, memory: Memory) -> Step:
    return denied(machine, p, memory, "admitted")


def scanned(machine: Machine, p: Process, memory: Memory, seen: Scan) -> Step:
    """The key has no committed slot: claim one, agree on one, or commit."""
    if not seen.twins:
        return unclaimed(machine, p, memory, seen)
    lowest, word = seen.twins[0]
    others = seen.twins[1:]
    if others:
        return Step(p._replace(pc="CAS_KILL", hint=lowest, matches=others), memory)
    if lowest != p.hint:
        return Step(rescan(p, hint=lowest), memory)
    return Step(to_commit(machine, p, word), memory)


def unclaimed(machine: Machine, p: Process, memory: Memory, seen: Scan) -> Step:
    if seen.dead:
        i, word = pick_dead(machine, p, seen.dead)
        pc = "CAS_CLAIM"
    elif seen.victim:
        i, word = seen.victim
        pc = "CAS_EVICT"
    else:
        return denied(machine, p, memory, "full")
    fp = FP_FIRST + p.key
    consuming = (
        not machine.rules.claim_uncommitted
        if pc == "CAS_CLAIM"
        else not machine.rules.evict_uncommitted
    )
    desired = claimed(fp, word)
    if consuming:
        limit, cells = machine.keys[p.key].limit, machine.hit_of(p).cells
        new = stepped(limit, state_of(desired), p.now, cells)
        assert new is not None, "a dead slot and a victim admit"
        desired = committed(fp, new)
    return Step(p._replace(pc=pc, at=i, expected=word, desired=desired), memory)


def pick_dead(machine: Machine, p: Process, dead: tuple[Found, ...]) -> Found:
    """The lowest dead slot of the line with more of them. A line is half the candidates here."""
    half = (len(machine.keys[p.key].candidates) + 1) // 2
    first = [found for found in dead if found[0] < half]
    second = [found for found in dead if found[0] >= half]
    return second[0] if len(second) > len(first) else first[0]


def to_commit(machine: Machine, p: Process, own: Word) -> Process:
    p = p._replace(pc="COMMIT_READ", at=p.hint, expected=own, desired=NO_WORD, seen=NOTHING)
    return p._replace(now=0) if machine.rules.clock_after_scan else p


# ---- writing -------------------------------------------------------------------------------


def cas_step(machine: Machine, p: Process, memory: Memory) -> Step:
    """CAS_STEP, CAS_COMMIT: consumes."""
    after = cas(machine, memory, p, p.at, p.expected, p.desired)
    if after is None:
        return Step(rescan(p, p.hint), memory)
    return admitted(machine, p, after)


def recheck(machine: Machine, p: Process, memory: Memory) -> Step:
    """RECHECK (split reads): a denial stands if v is still what it was."""
    if memory.slots[machine.keys[p.key].candidates[p.at]][1] != p.expected[1]:
        return Step(rescan(p, p.hint), memory)
    return denied(machine, p, memory)


def cas_claim(machine: Machine, p: Process, memory: Memory) -> Step:
    """CAS_CLAIM, CAS_EVICT: prepares a slot, then looks whether somebody else did the same."""
    after = cas(machine, memory, p, p.at, p.expected, p.desired)
    if after is None:
        return Step(rescan(p, p.hint), memory)
    events: tuple[Event, ...] = ()
    if p.pc == "CAS_EVICT" and is_committed(p.expected):
        events = (Event("evicted", p.expected[0] - FP_FIRST, p.now),)
    if is_committed(p.desired):
        step = admitted(machine, p, after)
        return step._replace(events=events + step.events)
    if machine.rules.rescan:
        return Step(rescan(p, p.at), after, events)
    return Step(to_commit(machine, p._replace(hint=p.at), p.desired), after, events)


def cas_kill(machine: Machine, p: Process, memory: Memory) -> Step:
    """CAS_KILL: one twin. A CAS that fails is seen by the scan that follows."""
    (i, word), *others = p.matches
    dead = claimed(EMPTY, word) if machine.rules.kill_raises else (EMPTY, word[1])
    after = cas(machine, memory, p, i, word, dead) or memory
    if others:
        return Step(p._replace(matches=tuple(others)), after)
    return Step(rescan(p, p.hint), after)


def commit_read(machine: Machine, p: Process, memory: Memory, clock: int) -> Step:
    """COMMIT_READ: the clock, then the step that CAS_COMMIT writes."""
    if machine.rules.clock_after_scan:
        p = p._replace(now=clock)
    limit = machine.keys[p.key].limit
    new = stepped(limit, state_of(p.expected), p.now, machine.hit_of(p).cells)
    if new is None:
        return denied(machine, p, memory)
    return Step(p._replace(pc="CAS_COMMIT", desired=committed(FP_FIRST + p.key, new)), memory)
