"""Reservations: waits in the order of their steps, refusals that take nothing, nobody early."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shmlimit
from tests.conftest import Clock

NS_PER_S = 1_000_000_000
INTERVAL_NS = 100_000_000  # of a limit of 10/s


class SleepingClock(Clock):
    """Time passes for whoever sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_s: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.ns += math.ceil(seconds * NS_PER_S)


@pytest.fixture
def clock() -> SleepingClock:
    return SleepingClock()


@pytest.fixture
def limit(segment_name: str, clock: SleepingClock) -> Iterator[shmlimit.Limit]:
    with shmlimit.Limiter(segment_name, keys=100, clock=clock, a="10/s burst 2") as limiter:
        yield limiter["a"]


def test_waiters_are_served_in_the_order_of_their_requests(limit: shmlimit.Limit) -> None:
    waits = [limit.reserve("x").wait_ns for _ in range(6)]
    assert waits == [0, 0, *(n * INTERVAL_NS for n in (1, 2, 3, 4))]
    assert limit.reserve("y").wait_ns == 0, "another key waits for nobody"


def test_a_wait_longer_than_the_timeout_is_refused_and_takes_nothing(
    limit: shmlimit.Limit, clock: SleepingClock
) -> None:
    for _ in range(3):
        limit.reserve("x")
    refused = limit.reserve("x", timeout=0.199_999_999)
    assert not refused
    assert refused.wait_ns == 0
    assert refused.retry_after_ns == 2 * INTERVAL_NS, "until it would pass without waiting"
    accepted = limit.reserve("x", timeout=0.2)
    assert accepted
    assert accepted.wait_ns == 2 * INTERVAL_NS
    clock.ns += 3 * INTERVAL_NS - 1
    assert not limit.hit("x")
    clock.ns += 1
    assert limit.hit("x")


def test_a_timeout_of_zero_is_a_hit(limit: shmlimit.Limit) -> None:
    assert [bool(limit.reserve("x", timeout=0)) for _ in range(3)] == [True, True, False]


def test_a_reservation_of_several_cells_waits_for_all_of_them(limit: shmlimit.Limit) -> None:
    limit.hit("x")
    assert limit.reserve("x", 2).wait_ns == INTERVAL_NS
    with pytest.raises(shmlimit.CostExceedsBurst):
        limit.reserve("x", 3)


def test_acquire_waits_and_then_has_its_cell(limit: shmlimit.Limit, clock: SleepingClock) -> None:
    decisions = [limit.acquire("x") for _ in range(5)]
    assert all(decisions)
    assert clock.slept_s == [0.1, 0.1, 0.1]
    assert not limit.acquire("x", timeout=0.05)
    assert len(clock.slept_s) == 3, "a refusal does not wait"


def test_acquire_async_by_a_clock_that_sleeps(limit: shmlimit.Limit, clock: SleepingClock) -> None:
    async def three() -> list[bool]:
        return [bool(await limit.acquire_async("x")) for _ in range(3)]

    assert asyncio.run(three()) == [True] * 3
    assert clock.slept_s == [0.1]


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_nothing_waits_unless_the_limit_is_enforced(segment_name: str, mode: str) -> None:
    config = shmlimit.LimitConfig("a", shmlimit.Rate.parse_several("1/h"), mode=mode)
    with shmlimit.Limiter(segment_name, keys=100, a=config) as limiter:
        for _ in range(3):
            decision = limiter["a"].acquire("x", timeout=5)
            assert decision.allowed
            assert decision.wait_ns == 0


@pytest.mark.parametrize("timeout", [-1, -0.001, float("nan")])
def test_a_timeout_that_is_no_time_is_refused(limit: shmlimit.Limit, timeout: float) -> None:
    with pytest.raises(ValueError, match="a timeout is a number of seconds"):
        limit.reserve("x", timeout=timeout)


@pytest.mark.parametrize("timeout", ["1", True, [1]])
def test_a_timeout_of_another_type_is_refused(limit: shmlimit.Limit, timeout: object) -> None:
    with pytest.raises(TypeError, match="a timeout is a number of seconds or None"):
        limit.reserve("x", timeout=timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize("timeout", [None, float("inf"), 1e300, 10**400])
def test_however_long_a_timeout_is_it_is_accepted(limit: shmlimit.Limit, timeout: float) -> None:
    assert [limit.reserve("x", timeout=timeout).wait_ns for _ in range(3)] == [0, 0, INTERVAL_NS]


def test_in_a_full_set_retry_after_is_until_it_passes_without_waiting(
    segment_name: str, clock: SleepingClock
) -> None:
    with shmlimit.Limiter(segment_name, keys=1, clock=clock, a="1/s burst 10") as limiter:
        limit = limiter["a"]
        for i in range(8):
            limit.charge(f"debtor-{i}", 20)
        refused = limit.reserve("new", timeout=2)
        assert not refused
        assert refused.retry_after_ns == limit.peek("new").retry_after_ns
        clock.ns += refused.retry_after_ns
        assert limit.hit("new")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3 * INTERVAL_NS),  # ns until the request
            st.integers(1, 3),  # cells
            st.none() | st.integers(0, 10 * INTERVAL_NS),  # timeout, ns
        ),
        max_size=40,
    )
)
def test_no_window_of_times_to_go_ahead_holds_too_much(
    steps: list[tuple[int, int, int | None]],
) -> None:
    clock = Clock()
    name = f"test-waits-{threading.get_native_id()}-{time.monotonic_ns()}"
    with shmlimit.Limiter(name, keys=10, clock=clock, a="10/s burst 3") as limiter:
        ahead: list[int] = []  # ns, one for each cell
        for pause_ns, cells, timeout_ns in steps:
            clock.ns += pause_ns
            timeout_s = None if timeout_ns is None else timeout_ns / NS_PER_S
            decision = limiter["a"].reserve("x", cells, timeout_s)
            if decision:
                assert timeout_ns is None or decision.wait_ns <= timeout_ns
                ahead += [clock.ns + decision.wait_ns] * cells
        assert ahead == sorted(ahead), "first come, first served"
        for i, start_ns in enumerate(ahead):
            for j in range(i, len(ahead)):
                assert (j - i + 1) * INTERVAL_NS <= 3 * INTERVAL_NS + ahead[j] - start_ns


def test_tasks_wait_side_by_side(segment_name: str) -> None:
    """By the real clock: 10 ms in all, not 10 ms each."""
    with shmlimit.Limiter(segment_name, keys=100, a="1000/s burst 1") as limiter:

        async def ten() -> list[shmlimit.Decision]:
            return await asyncio.gather(*(limiter["a"].acquire_async("x") for _ in range(10)))

        decisions = asyncio.run(ten())
        assert all(decisions)
        waits_ns = [decision.wait_ns for decision in decisions]
        assert waits_ns[-1] > 0


def test_who_is_cancelled_forfeits_its_cell_and_delays_nobody_further(
    limit: shmlimit.Limit, clock: SleepingClock
) -> None:
    waits_ns = [limit.reserve("x").wait_ns for _ in range(4)]
    # the third and the fourth go away; who comes next waits behind them, and no longer
    assert limit.reserve("x").wait_ns == waits_ns[-1] + INTERVAL_NS
    clock.ns += waits_ns[-1] + INTERVAL_NS
    assert limit.reserve("x").wait_ns == INTERVAL_NS
