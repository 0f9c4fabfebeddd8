"""Every vector through the compiled step, and through a real limiter on a table in memory."""

from __future__ import annotations

import pytest

import shmlimit
from shmlimit import _core
from shmlimit.errors import CostExceedsBurst
from shmlimit.rate import Rate
from shmlimit.share import Share
from tests import vector_files
from tests.conftest import Clock
from tests.vector_files import Sequence, Step

TICKS_PER_NS = 16
BASE_NS = 50 * 10**9  # the vectors' times count from here

each_sequence = pytest.mark.parametrize(
    "sequence", vector_files.gcra(), ids=lambda sequence: str(sequence["id"])
)


def rate_of(sequence: Sequence) -> Rate:
    return Rate(sequence["count"], sequence["period_ns"], sequence["burst"])


def ceil_ns(ticks: int) -> int:
    return -(-ticks // TICKS_PER_NS)


class SteppedBucket:
    """One bucket on `_core.step` alone: pure numbers, no table."""

    def __init__(self, sequence: Sequence) -> None:
        self.rate = rate_of(sequence)
        self.state_ticks = 0
        self.share(sequence["hosts"])

    def share(self, hosts: int) -> None:
        self.numbers = Share.of(self.rate, hosts)

    def hit(self, t_ns: int, cost: int) -> tuple[bool, int, int | None, int]:
        """(allowed, remaining cells, retry after ns, reset after ns)."""
        if cost > self.rate.burst:  # the limit's affair: the step would wait for a full bucket
            _, remaining, _, reset_after_ns = self.hit(t_ns, 0)
            return False, remaining, None, reset_after_ns
        now = t_ns * TICKS_PER_NS
        n = self.numbers
        allowed, state, remaining, retry_ticks = _core.step(
            self.state_ticks, now, n.interval_ticks, n.tolerance_ticks, cost
        )
        if allowed and cost:
            self.state_ticks = state
        return allowed, remaining, ceil_ns(retry_ticks), ceil_ns(state - now)


class LimiterBucket:
    """One key of a real limiter, on a clock that the vectors set."""

    def __init__(self, sequence: Sequence, limiter: shmlimit.Limiter, clock: Clock) -> None:
        self.rate = rate_of(sequence)
        self.limiter = limiter
        self.limit = limiter["v"]
        self.clock = clock
        self.share(sequence["hosts"])

    def share(self, hosts: int) -> None:
        table = self.limiter._segment.table
        table.hosts.pin(hosts)
        table.publish("v", [self.rate])

    def hit(self, t_ns: int, cost: int) -> tuple[bool, int, int | None, int]:
        self.clock.ns = BASE_NS + t_ns
        if cost > self.rate.burst:
            for call in (self.limit.hit, self.limit.peek, self.limit.allow):
                with pytest.raises(CostExceedsBurst):
                    call("key", cost)
            with pytest.raises(CostExceedsBurst):
                self.limit.hit_many(["key"], cost)
            as_it_was = self.limit.peek("key", 0)
            return False, as_it_was.remaining, None, as_it_was.reset_after_ns
        foretold = self.limit.peek("key", cost)
        d = self.limit.hit("key", cost)
        assert (foretold.allowed, foretold.retry_after_ns) == (d.allowed, d.retry_after_ns)
        assert (bool(d), d.limit, d.name) == (d.allowed, self.rate.burst, "v")
        assert (d.retry_after, d.reset_after) == (d.retry_after_ns / 1e9, d.reset_after_ns / 1e9)
        return d.allowed, d.remaining, d.retry_after_ns, d.reset_after_ns


def replay(bucket: SteppedBucket | LimiterBucket, step: Step) -> None:
    if step["op"] == "share":
        bucket.share(step["hosts"])
    elif step["op"] == "grant":  # as many of `want` as fit at once
        granted = min(step["want"], bucket.hit(step["t_ns"], 0)[1])
        assert granted == step["granted"]
        if granted:
            assert bucket.hit(step["t_ns"], granted)[0]
    else:
        assert step["op"] == "hit"
        found = bucket.hit(step["t_ns"], step["cost"])
        assert found == (
            step["allowed"], step["remaining"], step["retry_after_ns"], step["reset_after_ns"]
        )  # fmt: skip


@each_sequence
def test_the_step_gives_every_vector_to_the_tick(sequence: Sequence) -> None:
    bucket = SteppedBucket(sequence)
    for step in sequence["steps"]:
        replay(bucket, step)


@each_sequence
def test_a_limiter_gives_every_vector_to_the_nanosecond(
    sequence: Sequence, segment_name: str, clock: Clock
) -> None:
    clock.ns = BASE_NS
    with shmlimit.Limiter(
        segment_name, keys=100, workers=1, clock=clock, v=rate_of(sequence)
    ) as limiter:
        bucket = LimiterBucket(sequence, limiter, clock)
        for step in sequence["steps"]:
            replay(bucket, step)
        limiter.check()
