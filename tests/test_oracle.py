"""The oracle against every vector, and against what a limiter promises."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import vector_files
from tests.oracle import TICKS_PER_NS, OracleLimit, OracleLimiter, Verdict
from tests.vector_files import Sequence, Step

UNHURRIED = settings(deadline=None)  # a busy machine is no failure

SECOND = 10**9  # ns


def replay(limit: OracleLimit, step: Step) -> list[tuple[str, object, object]]:
    """Does one step; every column that came out otherwise: (column, found, expected)."""
    if step["op"] == "hit":
        verdict = limit.hit("key", step["t_ns"], step["cost"])
        columns = [
            ("allowed", verdict.allowed, step["allowed"]),
            ("remaining", verdict.remaining, step["remaining"]),
            ("retry_after_ns", verdict.retry_after_ns, step["retry_after_ns"]),
            ("reset_after_ns", verdict.reset_after_ns, step["reset_after_ns"]),
        ]
    elif step["op"] == "grant":
        granted = limit.grant("key", step["t_ns"], step["want"])
        columns = [("granted", granted, step["granted"])]
    elif step["op"] == "share":
        limit.share(step["hosts"])
        columns = [
            ("T_ticks", limit.interval_ticks, step["T_ticks"]),
            ("tau_ticks", limit.tolerance_ticks, step["tau_ticks"]),
        ]
    else:
        raise ValueError(f"unknown op {step['op']!r}")
    return [column for column in columns if column[1] != column[2]]


@pytest.mark.parametrize("sequence", vector_files.gcra(), ids=lambda sequence: str(sequence["id"]))
def test_every_vector(sequence: Sequence) -> None:
    limit = OracleLimit(
        sequence["count"], sequence["period_ns"], sequence["burst"], sequence["hosts"]
    )
    assert limit.interval_ticks == sequence["T_ticks"]
    assert limit.tolerance_ticks == sequence["tau_ticks"]
    for number, step in enumerate(sequence["steps"]):
        assert replay(limit, step) == [], f"step {number}: {step}"


def test_the_vectors_cover_what_they_are_for() -> None:
    steps = [step for sequence in vector_files.gcra_part() for step in sequence["steps"]]
    assert {step["op"] for step in steps} == {"hit", "grant", "share"}
    hits = [step for step in steps if step["op"] == "hit"]
    assert {hit["allowed"] for hit in hits} == {True, False}
    assert any(hit["retry_after_ns"] is None for hit in hits)
    assert any(hit["cost"] == 0 and not hit["allowed"] for hit in hits), "peeked in over-debt"
    assert any("exact" in hit for hit in hits), "rounding shows"


def test_the_part_kept_here_is_of_the_full_set() -> None:
    full = {sequence["id"]: sequence for sequence in vector_files.gcra()}
    assert len(vector_files.gcra_part()) == 40
    for sequence in vector_files.gcra_part():
        assert sequence == full[sequence["id"]]


def admitted_cells(step: Step) -> int:
    if step["op"] == "grant":
        return step["granted"]
    return step["cost"] if step["op"] == "hit" and step["allowed"] else 0


def test_no_window_of_a_vector_admits_more_than_the_burst_and_the_rate() -> None:
    checked = 0
    for sequence in vector_files.gcra():
        steps = sequence["steps"]
        if any(step["op"] == "share" for step in steps) or sequence["hosts"] != 1:
            continue
        rate_per_ns = Fraction(sequence["count"], sequence["period_ns"])
        for first in range(len(steps)):
            cells = 0
            times_ns = []  # some vectors step back in time, as a late reading of the clock does
            for step in steps[first:]:
                cells += admitted_cells(step)
                times_ns.append(step["t_ns"])
                length_ns = max(times_ns) - min(times_ns)
                assert cells <= sequence["burst"] + rate_per_ns * length_ns, sequence["id"]
                checked += 1
    assert checked


# Exact rates: a cell is a whole number of ticks, so that the bounds hold to the cell.
EXACT = st.sampled_from([(1, SECOND), (10, SECOND), (100, SECOND), (60, 60 * SECOND), (1, 10)])
# Odd ones, where rounding shows.
ODD = st.sampled_from([(3, SECOND), (7, 60 * SECOND), (999_983, SECOND), (13, 7), (5, 3)])
RATES = st.one_of(EXACT, ODD)


def history(limit: OracleLimit, taken: list[tuple[float, int]]) -> int:
    """Hits of (intervals since the last, cost); the time of the last in ns."""
    t_ns = 0
    for intervals, cost in taken:
        t_ns += int(intervals * limit.interval_ticks / TICKS_PER_NS)
        limit.hit("key", t_ns, cost)
    return t_ns


HISTORIES = st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5)), max_size=20)


@UNHURRIED
@given(RATES, st.integers(1, 8), st.integers(1, 12), HISTORIES, st.integers(1, 8))
def test_retry_after_is_exact(
    rate: tuple[int, int], burst: int, hosts: int, taken: list[tuple[float, int]], cost: int
) -> None:
    limit = OracleLimit(*rate, burst, hosts)
    t_ns = history(limit, taken)
    verdict = limit.peek("key", t_ns, cost)
    if verdict.retry_after_ns is None:
        assert cost > burst
        return
    assert limit.peek("key", t_ns + verdict.retry_after_ns, cost).allowed
    if verdict.retry_after_ns:
        assert not limit.peek("key", t_ns + verdict.retry_after_ns - 1, cost).allowed


@UNHURRIED
@given(RATES, st.integers(1, 8), st.integers(1, 12), HISTORIES, st.integers(0, 9))
def test_peek_foretells_hit_and_writes_nothing(
    rate: tuple[int, int], burst: int, hosts: int, taken: list[tuple[float, int]], cost: int
) -> None:
    limit = OracleLimit(*rate, burst, hosts)
    t_ns = history(limit, taken)
    before = dict(limit.tat_ticks)
    peeked = limit.peek("key", t_ns, cost)
    assert limit.tat_ticks == before
    hit = limit.hit("key", t_ns, cost)
    assert (hit.allowed, hit.retry_after_ns) == (peeked.allowed, peeked.retry_after_ns)
    if not hit or not cost:
        assert hit == peeked
        assert limit.tat_ticks == before


@UNHURRIED
@given(EXACT, st.integers(1, 20), st.data())
def test_a_fleet_admits_at_most_the_burst_and_the_rate(
    rate: tuple[int, int], burst: int, data: st.DataObject
) -> None:
    count, period_ns = rate
    hosts = data.draw(st.integers(1, burst), label="hosts")
    fleet = [OracleLimit(count, period_ns, burst, hosts) for _ in range(hosts)]
    gap_ns = st.integers(0, 3 * period_ns // count)
    length_ns = admitted = 0
    for gap in data.draw(st.lists(gap_ns, max_size=30), label="gaps"):
        length_ns += gap
        for limit in fleet:
            while limit.hit("key", length_ns):
                admitted += 1
    assert admitted <= burst + Fraction(count * length_ns, period_ns)


@UNHURRIED
@given(st.integers(1, 5), st.integers(1, 50))
def test_every_host_admits_something(burst: int, hosts: int) -> None:
    limit = OracleLimit(5, 60 * SECOND, burst, hosts)
    assert limit.hit("key", 0)


@UNHURRIED
@given(RATES, st.integers(1, 8), st.integers(1, 12))
def test_every_cost_up_to_the_burst_fits_a_full_bucket(
    rate: tuple[int, int], burst: int, hosts: int
) -> None:
    for cost in range(1, burst + 1):
        assert OracleLimit(*rate, burst, hosts).hit("key", 0, cost)
    assert OracleLimit(*rate, burst, hosts).hit("key", 0, burst + 1) == Verdict(
        False, OracleLimit(*rate, burst, hosts).peek("key", 0).remaining, None, 0
    )


@UNHURRIED
@given(RATES, st.integers(1, 8), HISTORIES)
def test_a_dead_key_is_as_good_as_new(
    rate: tuple[int, int], burst: int, taken: list[tuple[float, int]]
) -> None:
    limit = OracleLimit(*rate, burst)
    t_ns = history(limit, taken)
    dead_ns = t_ns + limit.peek("key", t_ns).reset_after_ns + 1
    assert limit.live_keys(dead_ns) == set()
    assert limit.peek("key", dead_ns) == limit.peek("new", dead_ns)


def test_a_key_is_live_until_its_arrival_time_has_passed() -> None:
    limit = OracleLimit(1, SECOND, 1)
    limit.hit("key", 5 * SECOND)
    assert limit.live_keys(6 * SECOND) == {"key"}
    assert limit.live_keys(6 * SECOND + 1) == set()


def test_an_earlier_reading_is_harmless() -> None:
    limit = OracleLimit(1, SECOND, 1)
    assert limit.hit("key", 10 * SECOND)
    assert not limit.hit("key", 9 * SECOND)
    assert limit.hit("key", 11 * SECOND)


def test_clear_and_reset_forget_and_limits_are_apart() -> None:
    limiter = OracleLimiter(a=(1, SECOND, 1), b=(1, SECOND, 1))
    for key in ("x", "y"):
        assert limiter["a"].hit(key, 0)
        assert not limiter["a"].hit(key, 0)
    assert limiter["b"].hit("x", 0)
    limiter["a"].clear("x")
    limiter["a"].clear("never seen")
    assert limiter["a"].hit("x", 0)
    assert not limiter["a"].hit("y", 0)
    limiter["a"].reset()
    assert limiter["a"].hit("x", 0)
    assert limiter["a"].hit("y", 0)
    assert not limiter["b"].hit("x", 0)


def test_a_new_share_keeps_the_debt_in_time() -> None:
    limiter = OracleLimiter(a=(1, SECOND, 10))
    assert limiter["a"].hit("x", 0, cost=4)
    limiter.share(5)
    assert limiter["a"].peek("x", 0).reset_after_ns == 4 * SECOND
    assert limiter["a"].peek("x", 0).remaining == 1  # 6 s of debt left, a cell is 5 s
