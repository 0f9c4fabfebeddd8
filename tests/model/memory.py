"""What processes share: slots and one limit row. All values are tuples: a memory is a dict key."""

from __future__ import annotations

from typing import NamedTuple

Word = tuple[int, int]
"""(fp, v), v = state << 1 | committed, state in ticks. As slot_word in pyx/atomics.h."""

EMPTY = 0
ABANDONED = 1
FP_FIRST = 2


class Limit(NamedTuple):
    """T and tau in ticks; tau is a whole number of T here, so the burst is tau / T cells."""

    interval: int
    tolerance: int
    when_full: str = "evict"  # "evict" | "deny"

    @property
    def burst(self) -> int:
        """Cells."""
        return self.tolerance // self.interval


class Key(NamedTuple):
    """A key under one salt of its limit. Its fingerprint is FP_FIRST + its place in the world."""

    name: str
    limit: Limit
    candidates: tuple[int, ...]  # slot numbers, in the key's own order


class Row(NamedTuple):
    """head = generation << 1 | valid buffer. A buffer is two words here: salt, interval."""

    head: int
    buffers: tuple[tuple[int, int], tuple[int, int]]


class Memory(NamedTuple):
    slots: tuple[Word, ...]
    row: Row | None = None  # None: nobody publishes, calls do not read the row


def state_of(word: Word) -> int:
    return word[1] >> 1


def is_committed(word: Word) -> bool:
    return bool(word[1] & 1)


def is_dead(word: Word, now: int) -> bool:
    return word[1] >> 1 < now


def claimed(fp: int, word: Word) -> Word:
    """Taken over without consuming: state + 1, uncommitted."""
    return fp, (state_of(word) + 1) << 1


def committed(fp: int, state: int) -> Word:
    return fp, state << 1 | 1


def stepped(limit: Limit, state: int, now: int, cells: int) -> int | None:
    """GCRA: the new state, None when denied."""
    increment = cells * limit.interval
    new = max(state, now) + increment
    late = new - now - max(limit.tolerance, increment)
    return None if late > 0 else new
