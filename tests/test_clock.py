"""Whose clock is read, and that a clock which fails or steps back does no harm."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import shmlimit
from shmlimit import _core
from tests.conftest import Clock

SECOND = 10**9  # ns


class Failing(Clock):
    """A clock that raises when it is told to: at its `failing`-th reading from now."""

    failing = 0  # 0 = never

    def __call__(self) -> int:
        if self.failing:
            self.failing -= 1
            if not self.failing:
                raise RuntimeError("the clock stopped")
        return super().__call__()


@pytest.fixture
def failing() -> Failing:
    return Failing()


@pytest.fixture
def limiter(segment_name: str, failing: Failing) -> Iterator[shmlimit.Limiter]:
    with shmlimit.Limiter(
        segment_name, keys=100, workers=1, clock=failing, a="1/s burst 3"
    ) as made:
        yield made


@pytest.mark.parametrize("method", ["hit", "allow", "peek", "clear"])
def test_a_failing_clock_takes_nothing_from_a_known_key(
    limiter: shmlimit.Limiter, failing: Failing, method: str
) -> None:
    limit = limiter["a"]
    limit.hit("x")
    failing.failing = 1
    with pytest.raises(RuntimeError, match="the clock stopped"):
        getattr(limit, method)("x")
    assert limit.hit("x").remaining == 1, "only the two hits that were answered count"
    assert limiter.check().live == 1


def test_a_failing_clock_takes_nothing_from_a_batch(
    limiter: shmlimit.Limiter, failing: Failing
) -> None:
    failing.failing = 1
    with pytest.raises(RuntimeError, match="the clock stopped"):
        limiter["a"].hit_many(["x", "y"])
    assert [d.remaining for d in limiter["a"].hit_many(["x", "y"])] == [2, 2]


@pytest.mark.parametrize("method", ["hit", "allow"])
def test_a_clock_that_fails_at_the_commit_costs_a_cell_at_most(
    limiter: shmlimit.Limiter, failing: Failing, method: str
) -> None:
    limit = limiter["a"]
    failing.failing = 2  # a new key reads the clock again before it commits
    with pytest.raises(RuntimeError, match="the clock stopped"):
        getattr(limit, method)("x")
    assert limit.peek("x", 0).remaining >= 2
    admitted = sum(limit.allow("x") for _ in range(4))
    assert 2 <= admitted <= 3
    limiter.check()
    failing.failing = 1
    with pytest.raises(RuntimeError, match="the clock stopped"):
        limiter.check()


def test_an_error_is_raised_once(limiter: shmlimit.Limiter, failing: Failing) -> None:
    failing.failing = 1
    with pytest.raises(RuntimeError):
        limiter["a"].hit("x")
    assert limiter["a"].hit("x")


@pytest.mark.parametrize("reading", [None, 1.5, "1", -1, 2**64], ids=repr)
def test_a_reading_that_is_no_time_is_an_error(
    limiter: shmlimit.Limiter, failing: Failing, reading: object
) -> None:
    before_ns = failing.ns
    failing.ns = reading  # type: ignore[assignment]
    with pytest.raises((TypeError, OverflowError)):
        limiter["a"].hit("x")
    failing.ns = before_ns
    assert limiter["a"].hit("x").remaining == 2


def test_a_clock_that_steps_back_gives_no_cells(
    limiter: shmlimit.Limiter, failing: Failing
) -> None:
    limit = limiter["a"]
    start_ns = failing.ns
    assert [limit.allow("x") for _ in range(4)] == [True, True, True, False]
    for back_ns in (1, SECOND // 2, SECOND, 2 * SECOND, start_ns):
        failing.ns = start_ns - back_ns
        assert not limit.allow("x")
        assert limit.peek("x", 3).retry_after_ns >= 3 * SECOND
    failing.ns = start_ns + SECOND
    assert [limit.allow("x") for _ in range(2)] == [True, False]
    failing.ns = start_ns
    assert limit.hit("new").remaining == 2
    limiter.check()


def test_a_clock_far_ahead_and_back_again_loses_no_admission_for_ever(
    limiter: shmlimit.Limiter, failing: Failing
) -> None:
    start_ns = failing.ns
    failing.ns = start_ns + 1000 * SECOND
    assert limiter["a"].hit("x")
    failing.ns = start_ns
    denied = limiter["a"].hit("x")
    assert not denied
    failing.ns += denied.retry_after_ns - 1
    assert not limiter["a"].hit("x")
    failing.ns += 1
    assert limiter["a"].hit("x")


@pytest.mark.parametrize("origin_ns", [0, 1, SECOND - 1, SECOND, 2**32, 2**53 + 1, 2**62, 2**63])
@pytest.mark.parametrize("initial", ["full", "empty"])
def test_a_fresh_table_gives_the_burst_whatever_its_clock_reads(
    segment_name: str, clock: Clock, origin_ns: int, initial: str
) -> None:
    clock.ns = origin_ns
    limit = shmlimit.LimitConfig("a", shmlimit.Rate.parse_several("1/s burst 3"), initial=initial)
    with shmlimit.Limiter(segment_name, keys=100, workers=1, clock=clock, a=limit) as limiter:
        at_first = 3 if initial == "full" else 0
        for cells in (at_first, 1, 1):
            assert sum(limiter["a"].allow("x") for _ in range(10)) == cells
            assert limiter["a"].hit("x").retry_after_ns == SECOND
            clock.ns += SECOND
            clock.ns += clock.ns == SECOND  # a reading of 0 counts as a sixteenth of a ns (clock.h)
        clock.ns += 100 * SECOND
        assert sum(limiter["a"].allow("x") for _ in range(10)) == 3


def test_the_clock_is_the_monotonic_one(segment_name: str) -> None:
    before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    told_ns = _core.monotonic_ns()
    assert before_ns <= told_ns <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    with shmlimit.Limiter(segment_name, keys=100, workers=1, a="1/h burst 100") as limiter:
        header = limiter._segment.table.header
        assert header.clock_id == time.CLOCK_MONOTONIC
        assert 0 <= told_ns - header.epoch_ns <= 60 * SECOND
        before_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        reset_ns = limiter["a"].hit("x").reset_after_ns
        assert reset_ns == 3600 * SECOND
        drained_ns = reset_ns - limiter["a"].peek("x", 0).reset_after_ns
        after_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        assert 0 < drained_ns <= after_ns - before_ns, "it drains by that clock"


def test_the_wall_clock_at_creation_is_kept(segment_name: str, clock: Clock) -> None:
    with shmlimit.Limiter(segment_name, keys=100, workers=1, clock=clock) as limiter:
        header = limiter._segment.table.header
        wall_ns = clock.ns + header.wall_offset_ns
        assert abs(wall_ns - time.time_ns()) < 600 * SECOND
        assert header.epoch_ns == clock.ns - SECOND
