"""What processes killed within a decision leave in the slots, and that the next request mends it.

The leavings are written by hand, so that each is met for certain. The table is the smallest: every
key has all eight slots for its candidates.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmlimit
from tests.conftest import Clock
from tests.segment_file import SegmentFile

SECOND = 10**9  # ns
BURST = 5
SLOTS = 8


@pytest.fixture
def limiter(segment_name: str, clock: Clock) -> Iterator[shmlimit.Limiter]:
    with shmlimit.Limiter(
        segment_name, keys=1, workers=1, clock=clock, a=f"1/s burst {BURST}"
    ) as made:
        yield made


@pytest.fixture
def file(limiter: shmlimit.Limiter) -> Iterator[SegmentFile]:
    with SegmentFile.of(limiter.path) as opened:
        yield opened


def fingerprint(limiter: shmlimit.Limiter, file: SegmentFile, key: str) -> int:
    """What stands for the key in its slot. Leaves the table as new."""
    limiter["a"].hit(key)
    (index,) = file.used_slots()
    fp = file.slot(index)[0]
    file.set_slot(index, 0, 0)
    return fp


def claim(file: SegmentFile, index: int, fp: int, state_ticks: int) -> None:
    """A slot taken for a key, from which nothing was consumed yet."""
    file.set_slot(index, fp, state_ticks << 1)


def holders(file: SegmentFile, fp: int) -> list[tuple[int, bool]]:
    """The slots of a key: (index, whether it was consumed from)."""
    return [(i, bool(file.slot(i)[1] & 1)) for i in range(SLOTS) if file.slot(i)[0] == fp]


@pytest.mark.parametrize("index", [0, 3, 4, 7])
def test_a_claim_is_taken_up(limiter: shmlimit.Limiter, file: SegmentFile, index: int) -> None:
    fp = fingerprint(limiter, file, "x")
    claim(file, index, fp, 1)
    assert limiter["a"].peek("x", 0).remaining == BURST
    assert limiter["a"].hit("x").remaining == BURST - 1
    assert holders(file, fp) == [(index, True)]


@pytest.mark.parametrize("claims", [(0, 1), (2, 5), (4, 7), (0, 3, 6), range(8)])
def test_of_several_claims_one_is_left(
    limiter: shmlimit.Limiter, file: SegmentFile, claims: tuple[int, ...]
) -> None:
    fp = fingerprint(limiter, file, "x")
    for index in claims:
        claim(file, index, fp, 1)
    assert limiter["a"].hit("x").remaining == BURST - 1
    first_line = (fp >> 32) * 2 >> 32  # a key's own order begins with its first line
    kept = min(claims, key=lambda index: (index // 4 != first_line, index))
    assert holders(file, fp) == [(kept, True)], "the lowest; the others are given up"
    assert limiter["a"].hit("x").remaining == BURST - 2
    limiter.check()


@pytest.mark.parametrize(("consumed", "claimed"), [(0, 1), (1, 0), (2, 6), (6, 2)])
def test_a_claim_beside_a_bucket_gives_nothing(
    limiter: shmlimit.Limiter, file: SegmentFile, clock: Clock, consumed: int, claimed: int
) -> None:
    fp = fingerprint(limiter, file, "x")
    now = 16 * SECOND  # ticks since the segment's epoch
    file.set_slot(consumed, fp, (now + 3 * 16 * SECOND) << 1 | 1)
    claim(file, claimed, fp, 1)
    assert limiter["a"].peek("x", 0).remaining == BURST - 3
    assert [limiter["a"].allow("x") for _ in range(3)] == [True, True, False]
    clock.ns += SECOND
    assert [limiter["a"].allow("x") for _ in range(2)] == [True, False]


def test_a_takeover_that_was_not_finished_keeps_its_debt(
    limiter: shmlimit.Limiter, file: SegmentFile
) -> None:
    fp = fingerprint(limiter, file, "x")
    now = 16 * SECOND
    claim(file, 5, fp, now + 2 * 16 * SECOND)
    assert limiter["a"].hit("x").remaining == BURST - 3
    assert holders(file, fp) == [(5, True)]


def test_claims_of_the_dead_do_not_fill_the_table(
    limiter: shmlimit.Limiter, file: SegmentFile, clock: Clock
) -> None:
    for index in range(SLOTS):  # each by a process that died, for a key that nobody asks for again
        claim(file, index, 1000 + index, 1)
    assert [d.remaining for d in limiter["a"].hit_many([str(n) for n in range(SLOTS)])] == [4] * 8
    assert limiter.counters()["a"]["evicted"] == 0
    assert limiter.check().uncommitted == 0


def test_a_slot_that_was_given_up_is_used_again(
    limiter: shmlimit.Limiter, file: SegmentFile
) -> None:
    now = 16 * SECOND
    for index in range(SLOTS - 1):
        claim(file, index, 1, now + 16 * SECOND)  # abandoned, and live for a second
    claim(file, SLOTS - 1, 0, 3)  # given up in favour of a twin
    assert limiter["a"].hit("x").remaining == BURST - 1
    assert file.slot(SLOTS - 1)[0] > 1
    assert limiter.check().abandoned == SLOTS - 1
