"""What a request cost beyond what was asked for: taken as debt, to an end, and paid off in time."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shmlimit
from tests.conftest import Clock

INTERVAL_NS = 100_000_000  # of a limit of 10/s
BURST = 5
DEBT_CELLS = 10 * BURST  # beyond the burst


@pytest.fixture
def limiter(segment_name: str, clock: Clock) -> Iterator[shmlimit.Limiter]:
    with shmlimit.Limiter(segment_name, keys=100, clock=clock, a=f"10/s burst {BURST}") as made:
        yield made


def test_what_fits_is_taken_like_a_hit(limiter: shmlimit.Limiter) -> None:
    limit = limiter["a"]
    assert limit.charge("x", 2) == 2
    assert limit.peek("x", 0).remaining == BURST - 2
    assert limit.charge("x", 0) == 0


def test_what_does_not_fit_is_owed(limiter: shmlimit.Limiter, clock: Clock) -> None:
    limit = limiter["a"]
    assert limit.charge("x", BURST + 3) == BURST + 3
    refused = limit.hit("x")
    assert not refused
    assert refused.retry_after_ns == 4 * INTERVAL_NS, "three that are owed, and its own"
    clock.ns += 4 * INTERVAL_NS - 1
    assert not limit.hit("x")
    clock.ns += 1
    assert limit.hit("x")


def test_debt_has_an_end(limiter: shmlimit.Limiter, clock: Clock) -> None:
    limit = limiter["a"]
    assert limit.charge("x", 10**30) == BURST + DEBT_CELLS
    assert limit.charge("x", 1) == 0
    clock.ns += 7 * INTERVAL_NS
    assert limit.charge("x", 10) == 7
    assert limit.hit("x").reset_after_ns == (BURST + DEBT_CELLS) * INTERVAL_NS


def test_a_charge_counts_cells_and_no_decision(limiter: shmlimit.Limiter) -> None:
    limiter["a"].charge("x", BURST + 2)
    limiter["a"].charge("x", 10**6)
    counts = limiter.counters()["a"]
    assert counts["cells"] == BURST + DEBT_CELLS
    assert counts["allowed"] == counts["denied"] == 0


@pytest.mark.parametrize(("mode", "taken"), [("shadow", 7), ("off", 0)])
def test_modes(segment_name: str, mode: str, taken: int) -> None:
    config = shmlimit.LimitConfig("a", shmlimit.Rate.parse_several("1/h burst 2"), mode=mode)
    with shmlimit.Limiter(segment_name, keys=100, a=config) as limiter:
        assert limiter["a"].charge("x", 7) == taken
        assert limiter["a"].hit("x").allowed


def test_a_key_that_finds_no_slot_owes_nothing(segment_name: str, clock: Clock) -> None:
    for policy in ("deny", "allow"):
        config = shmlimit.LimitConfig("a", shmlimit.Rate.parse_several("1/h"), when_full=policy)
        with shmlimit.Limiter(segment_name, keys=1, clock=clock, a=config) as limiter:
            taken = [limiter["a"].charge(f"key-{i}", 1) for i in range(100)]
            assert sum(taken) == 8, "eight slots"
            limiter.check()


def test_in_a_full_set_a_larger_charge_takes_no_less(segment_name: str, clock: Clock) -> None:
    with shmlimit.Limiter(segment_name, keys=1, clock=clock, a="1/h burst 10") as limiter:
        limit = limiter["a"]
        for i in range(8):
            limit.hit(f"key-{i}")
        assert [limit.charge(f"new-{i}", extra) for i, extra in enumerate((1000, 110, 100))] == [
            108, 108, 100
        ]  # fmt: skip
        limiter.check()


def test_a_charge_takes_its_part_though_others_take_theirs(segment_name: str) -> None:
    keys, most = 400, 11 * 1000
    with shmlimit.Limiter(segment_name, keys=1000, a="1/h burst 1000") as limiter:
        limit = limiter["a"]
        at = memoryview(mmap.mmap(-1, 8)).cast("q")  # the key that both are at
        at[0] = keys  # at first one that only the child charges
        pid = os.fork()
        if pid == 0:
            charges = [0] * (keys + 1)
            while True:
                key = at[0]
                if charges[key] < most // 2:  # the rest is the parent's, however late it comes
                    charges[key] += limit.charge(f"key-{key}", 1)
        try:
            while limit.peek(f"key-{keys}", 0).remaining == 1000:
                os.sched_yield()
            taken = []
            for i in range(keys):
                at[0] = i
                taken.append(limit.charge(f"key-{i}", 10**9))
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert min(taken) > 0
        assert limiter.counters()["a"]["cells"] <= (keys + 1) * most
        assert all(limit.charge(f"key-{i}", 1) == 0 for i in range(keys)), "all owe the most"


@pytest.mark.parametrize("extra", [-1, 1.0, True, None, "1"])
def test_an_extra_that_is_no_number_of_cells_is_refused(
    limiter: shmlimit.Limiter, extra: object
) -> None:
    with pytest.raises((TypeError, ValueError), match="a cost is a whole number of cells"):
        limiter["a"].charge("x", extra)  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(0, 20 * INTERVAL_NS), st.booleans(), st.integers(1, 2 * BURST)),
        max_size=30,
    )
)
def test_hits_and_charges_are_those_of_one_number(steps: list[tuple[int, bool, int]]) -> None:
    clock = Clock()
    name = f"test-charges-{id(steps)}"
    with shmlimit.Limiter(name, keys=10, clock=clock, a=f"10/s burst {BURST}") as limiter:
        tat_ns = 0
        for pause_ns, charged, cells in steps:
            clock.ns += pause_ns
            base_ns = max(tat_ns, clock.ns)
            if charged:
                furthest_ns = clock.ns + (BURST + DEBT_CELLS) * INTERVAL_NS
                taken = max(min(cells, (furthest_ns - base_ns) // INTERVAL_NS), 0)
                assert limiter["a"].charge("x", cells) == taken
                tat_ns = base_ns + taken * INTERVAL_NS
                continue
            cost = min(cells, BURST)
            fits = base_ns + cost * INTERVAL_NS <= clock.ns + BURST * INTERVAL_NS
            assert limiter["a"].allow("x", cost) == fits
            tat_ns = base_ns + cost * INTERVAL_NS if fits else tat_ns
