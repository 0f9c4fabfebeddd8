"""A limiter against the plain oracle, through long random histories on a clock that tests move.

On a large table the oracle alone says what has to come. On the smallest table all keys share the
same eight slots: there it also says when no slot is free.

A limit with several rates is an oracle for each of them: all are asked, and take when all allow.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

import shmlimit
from shmlimit.errors import CostExceedsBurst, LimitRemoved
from shmlimit.rate import Rate
from tests.conftest import Clock
from tests.oracle import TICKS_PER_NS, OracleLimit

SECOND = 10**9  # ns
SLOTS = 8  # candidates of a key
SOAK = int(os.environ.get("SHMLIMIT_SOAK", "1"))  # how many times more
HISTORIES = settings(
    max_examples=120 * SOAK,
    stateful_step_count=50,
    derandomize=True,
    deadline=None,  # a busy machine is no failure
    suppress_health_check=[HealthCheck.too_slow],
)

KEYS: st.SearchStrategy[str | bytes] = st.sampled_from(
    ["", b"\xff", "\0", *(f"key {number}" for number in range(12))]
)
LIMITS = st.sampled_from(["a", "b"])
COSTS = st.sampled_from([1, 1, 1, 1, 2, 3, 5, 0, 9])
BURSTS = st.integers(1, 6)
# Cells of whole nanoseconds, and cells that rounding shows in.
EXACT = [(1, SECOND), (10, SECOND), (60, 60 * SECOND), (2, 600 * SECOND)]
ODD = [(3, SECOND), (7, 60 * SECOND), (999_983, SECOND), (13, 7)]

Numbers = tuple[tuple[int, int], int]  # (count, period in ns), burst
Answer = tuple[bool, int, int, int]  # allowed, remaining, retry after ns, reset after ns


def answer_of(decision: shmlimit.Decision) -> Answer:
    d = decision
    return d.allowed, d.remaining, d.retry_after_ns, d.reset_after_ns


class LimiterMachine(RuleBasedStateMachine):
    """Keys, costs, jumps in time, clears, resets, new numbers of one rate or several, and limits
    that are removed and come back, on a table with room for all."""

    segment_name = ""  # set by the test: hypothesis makes the machine
    table_keys = 10_000
    rates = [*EXACT, *ODD]  # noqa: RUF012
    rates_most = 3
    when_full = "evict"

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.limiter = shmlimit.Limiter(
            self.segment_name, keys=self.table_keys, workers=1, clock=self.clock, a="1/s", b="1/s"
        )
        self.hosts = 1
        self.epoch_ns = self.clock.ns - SECOND
        self.limits = {name: self.limiter[name] for name in ("a", "b")}
        self.oracles: dict[str, list[OracleLimit]] = {"a": [], "b": []}  # one a rate
        self.removed: set[str] = set()
        self.rows = Counter(a=1, b=1)  # the most rates that the limit ever had
        self.counts: dict[str, Counter[str]] = {"a": Counter(), "b": Counter()}
        self.full = False  # whether the answer expected last is that of a full set
        self.ghosts_ticks: list[int] = []  # states of slots that no key has any more
        for name in ("a", "b"):
            self.new_numbers(name, [((1, SECOND), 1)])

    @property
    def t_ns(self) -> int:
        return self.clock.ns - self.epoch_ns

    def states_ticks(self) -> list[int]:
        """Of all slots that were ever taken and, as far as is known, not given away."""
        return [
            tat
            for oracles in self.oracles.values()
            for oracle in oracles
            for tat in oracle.tat_ticks.values()
        ] + self.ghosts_ticks

    def live_ticks(self) -> list[int]:
        return [state for state in self.states_ticks() if state >= self.t_ns * TICKS_PER_NS]

    def expected(self, name: str, key: str | bytes, cost: int) -> Answer:
        """What a hit has to answer. Takes what it takes."""
        self.full = False
        oracles = self.oracles[name]
        lates = [oracle.late_ticks(key, self.t_ns, cost) for oracle in oracles]
        if any(lates):  # the longest wait decides, and nothing is taken
            verdict = oracles[lates.index(max(lates))].peek(key, self.t_ns, cost)
        else:
            verdicts = [oracle.hit(key, self.t_ns, cost) for oracle in oracles]
            verdict = min(verdicts, key=lambda verdict: verdict.remaining)
        assert verdict.retry_after_ns is not None
        return verdict.allowed, verdict.remaining, verdict.retry_after_ns, verdict.reset_after_ns

    def burst(self, name: str) -> int:
        return min(oracle.burst for oracle in self.oracles[name])

    def there(self, name: str) -> bool:
        """Whether the limit can be asked. When it was removed all ways to it say so."""
        if name in self.removed:
            assert name not in self.limiter
            for call in (lambda: self.limiter[name], lambda: self.limits[name].hit("x")):
                with pytest.raises(LimitRemoved):
                    call()
            return False
        assert self.limiter[name] is self.limits[name]
        return True

    def count(self, name: str, answer: Answer, cost: int) -> None:
        if cost:
            self.counts[name]["allowed" if answer[0] else "denied"] += 1
            self.counts[name]["cells"] += cost if answer[0] else 0
            self.counts[name]["full_allowed" if answer[0] else "full_denied"] += self.full

    @rule(name=LIMITS, key=KEYS, cost=COSTS, method=st.sampled_from(["hit", "allow"]))
    def hit(self, name: str, key: str | bytes, cost: int, method: str) -> None:
        if not self.there(name):
            return
        limit = self.limiter[name]
        if cost > self.burst(name):
            self.refused(name, key, cost)
            return
        expected = self.expected(name, key, cost)
        self.count(name, expected, cost)
        if method == "hit":
            assert answer_of(limit.hit(key, cost)) == expected
        else:
            assert limit.allow(key, cost) is expected[0]

    def refused(self, name: str, key: str | bytes, cost: int) -> None:
        try:
            self.limiter[name].hit(key, cost)
        except CostExceedsBurst:
            return
        raise AssertionError("a cost above the burst was decided")

    @rule(name=LIMITS, keys=st.lists(KEYS, max_size=6))
    def hit_many(self, name: str, keys: list[str | bytes]) -> None:
        if not self.there(name):
            return
        expected = []
        for key in keys:
            expected.append(self.expected(name, key, 1))
            self.count(name, expected[-1], 1)
        assert [answer_of(d) for d in self.limiter[name].hit_many(keys)] == expected

    @rule(name=LIMITS, key=KEYS, cost=COSTS)
    def peek(self, name: str, key: str | bytes, cost: int) -> None:
        if not self.there(name) or cost > self.burst(name):
            return
        before = [dict(oracle.tat_ticks) for oracle in self.oracles[name]]
        expected = self.expected(name, key, cost)
        for oracle, tat_ticks in zip(self.oracles[name], before, strict=True):
            oracle.tat_ticks = tat_ticks
        assert answer_of(self.limiter[name].peek(key, cost)) == expected

    @rule(part=st.sampled_from([0.01, 0.3, 1, 1, 2.5, 7]))
    def later(self, part: float) -> None:
        """By so many cells of limit a."""
        self.clock.ns += int(part * self.oracles["a"][0].interval_ticks / TICKS_PER_NS)

    @rule(margin_ns=st.sampled_from([-1, 0, 1]), which=st.integers(0, 30))
    def to_a_death(self, margin_ns: int, which: int) -> None:
        """To the instant at which some bucket is full again, or just beside it."""
        live = sorted(self.live_ticks())
        if live:
            at_ns = -(-live[which % len(live)] // TICKS_PER_NS) + margin_ns
            self.clock.ns = max(self.clock.ns, self.epoch_ns + at_ns)

    @rule(back_ns=st.sampled_from([1, 10**6, SECOND // 3, 5 * SECOND, 10**13]))
    def earlier(self, back_ns: int) -> None:
        """As a process does that read its clock before another. Not to before the end of a bucket
        that is full by now: it may be forgotten, and the oracle would remember."""
        now = self.t_ns * TICKS_PER_NS
        dead = [state for state in self.states_ticks() if state < now]
        floor_ns = max(dead, default=16) // TICKS_PER_NS + 1
        self.clock.ns = max(self.clock.ns - back_ns, min(self.clock.ns, self.epoch_ns + floor_ns))

    @rule(name=LIMITS, key=KEYS)
    def clear(self, name: str, key: str | bytes) -> None:
        ghosts = len([g for g in self.ghosts_ticks if g >= self.t_ns * TICKS_PER_NS])
        crowded = ghosts >= SLOTS - 3
        if not self.there(name) or (crowded and len(self.oracles[name]) > 1):
            return  # when only some of the rates forget, the answer does not tell which
        answer = self.limiter[name].clear(key)
        assert answer == "cleared" or crowded, "the clears of one key filled its set"
        if answer == "cleared":
            self.forget(name, key)

    def forget(self, name: str, key: str | bytes) -> None:
        for oracle in self.oracles[name]:
            tat = oracle.tat_ticks.pop(key, None)
            if tat is not None:
                self.ghosts_ticks.append(tat + 1)  # abandoning raises the slot's word

    def forget_all(self, oracles: list[OracleLimit]) -> None:
        for oracle in oracles:
            self.ghosts_ticks += oracle.tat_ticks.values()
            oracle.reset()

    @rule(name=LIMITS)
    def reset(self, name: str) -> None:
        if not self.there(name):
            return
        live = self.live_ticks()
        told = self.limiter[name].reset()
        self.forget_all(self.oracles[name])
        assert told.occupied_slots == len(live)
        ahead_ticks = max(live, default=self.t_ns * TICKS_PER_NS) - self.t_ns * TICKS_PER_NS
        assert told.dead_after_ns == -(-ahead_ticks // TICKS_PER_NS)

    @rule(name=LIMITS, data=st.data())
    def other_rates(self, name: str, data: st.DataObject) -> None:
        """A limit that was removed comes back."""
        numbers = st.tuples(st.sampled_from(self.rates), BURSTS)
        self.new_numbers(
            name, data.draw(st.lists(numbers, min_size=1, max_size=self.rates_most, unique=True))
        )

    def new_numbers(self, name: str, numbers: list[Numbers]) -> None:
        """Each place keeps its buckets; places that are added begin afresh."""
        oracles = self.oracles[name]
        self.forget_all(oracles[len(numbers) :])
        del oracles[len(numbers) :]
        for place, ((count, period_ns), burst) in enumerate(numbers):
            if place == len(oracles):
                oracles.append(OracleLimit(count, period_ns, burst))
            oracle = oracles[place]
            oracle.count, oracle.period_ns, oracle.burst = count, period_ns, burst
            oracle.share(self.hosts)
        self.removed.discard(name)
        self.rows[name] = max(self.rows[name], len(numbers))
        self.publish(name)
        assert self.limiter[name].rates == tuple(Rate(*rate, burst) for rate, burst in numbers)

    def publish(self, name: str) -> None:
        rates = [Rate(each.count, each.period_ns, each.burst) for each in self.oracles[name]]
        self.limiter._segment.table.publish(name, rates, "enforce", self.when_full)

    @rule(name=LIMITS)
    def remove(self, name: str) -> None:
        assert self.limiter._segment.table.remove(name) is (name not in self.removed)
        self.removed.add(name)
        self.forget_all(self.oracles[name])

    @invariant()
    def the_table_is_sound(self) -> None:
        told = self.limiter.check()
        assert told.live == len(self.live_ticks())
        assert told.uncommitted == 0
        assert told.limits == self.rows.total()
        assert list(self.limiter) == [name for name in ("a", "b") if name not in self.removed]

    @invariant()
    def the_counters_are_exact(self) -> None:
        for name, counts in self.limiter.counters().items():
            assert {which: n for which, n in counts.items() if n} == {
                which: n for which, n in self.counts[name].items() if n
            }

    def teardown(self) -> None:
        self.limiter.close()


class OwingMachine(LimiterMachine):
    """Keys that owe, keys that wait, and hosts that come and go besides."""

    def base_ticks(self, oracle: OracleLimit, key: str | bytes) -> int:
        return max(oracle.tat_ticks.get(key, 0), self.t_ns * TICKS_PER_NS)

    @rule(name=LIMITS, key=KEYS, extra=st.sampled_from([0, 1, 2, 7, 30, 10**9, 10**30]))
    def charge(self, name: str, key: str | bytes, extra: int) -> None:
        """Each rate takes what it can, and the least of it is told."""
        if not self.there(name):
            return
        least = extra
        for oracle in self.oracles[name]:
            furthest = self.t_ns * TICKS_PER_NS + 11 * oracle.tolerance_ticks
            base = self.base_ticks(oracle, key)
            taken = max(min(extra, (furthest - base) // oracle.interval_ticks), 0)
            least = min(least, taken)
            if taken:
                oracle.tat_ticks[key] = base + taken * oracle.interval_ticks
        assert self.limiter[name].charge(key, extra) == least
        self.counts[name]["cells"] += least

    @rule(name=LIMITS, key=KEYS, cost=COSTS, timeout_ms=st.sampled_from([0, 1, 90, 1000, 10**7]))
    def reserve(self, name: str, key: str | bytes, cost: int, timeout_ms: int) -> None:
        if not self.there(name) or cost == 0 or cost > self.burst(name):
            return
        late = max(oracle.late_ticks(key, self.t_ns, cost) for oracle in self.oracles[name])
        decision = self.limiter[name].reserve(key, cost, timeout_ms / 1000)
        allowed = late <= timeout_ms * 10**6 * TICKS_PER_NS
        assert decision.allowed is allowed
        late_ns = -(-late // TICKS_PER_NS)
        assert (decision.wait_ns, decision.retry_after_ns) == (
            (late_ns, 0) if allowed else (0, late_ns)
        )
        self.counts[name]["allowed" if allowed else "denied"] += 1
        if allowed:
            for oracle in self.oracles[name]:
                reached = self.base_ticks(oracle, key) + cost * oracle.interval_ticks
                oracle.tat_ticks[key] = reached
            self.counts[name]["cells"] += cost

    @rule(hosts=st.integers(1, 9))
    def other_hosts(self, hosts: int) -> None:
        """As when hosts join and leave. Debts stay the same in time."""
        self.hosts = hosts
        for oracles in self.oracles.values():
            for oracle in oracles:
                oracle.share(hosts)
        self.limiter._segment.table.hosts.pin(hosts)


class SmallestTable(LimiterMachine):
    """Two lines, which every key has for its candidates: eight slots, and the ninth key meets
    `when_full`. Rates are exact, so that no bucket ends between two readings of the clock."""

    table_keys = 4
    rates = EXACT
    rates_most = 1

    def expected(self, name: str, key: str | bytes, cost: int) -> Answer:
        now = self.t_ns * TICKS_PER_NS
        live = self.live_ticks()
        (oracle,) = self.oracles[name]
        if oracle.tat_ticks.get(key, -1) >= now or len(live) < SLOTS:
            return super().expected(name, key, cost)
        self.full = True
        if self.when_full == "allow":
            return True, oracle.tolerance_ticks // oracle.interval_ticks, 0, 0
        return False, 0, -(-(min(live) + 1 - now) // TICKS_PER_NS), 0

    @rule(name=LIMITS, key=KEYS)
    def clear(self, name: str, key: str | bytes) -> None:
        if not self.there(name):
            return
        now = self.t_ns * TICKS_PER_NS
        tat = self.oracles[name][0].tat_ticks.get(key, -1)
        free = SLOTS - len(self.live_ticks())
        answer = self.limiter[name].clear(key)
        if tat >= now and free < 2:
            assert answer == "set_full"
        elif tat < 0 or free >= 2:
            assert answer == "cleared"
        # else its bucket is full, and has a slot still or none: nothing changes either way
        if answer == "cleared":
            self.forget(name, key)


class SmallestTableAllowing(SmallestTable):
    when_full = "allow"


class SmallestTableDenying(SmallestTable):
    when_full = "deny"


@pytest.mark.parametrize(
    "machine", [LimiterMachine, OwingMachine, SmallestTableAllowing, SmallestTableDenying]
)
def test_every_history_gives_what_the_oracle_says(
    machine: type[LimiterMachine], segment_name: str
) -> None:
    machine.segment_name = segment_name
    run_state_machine_as_test(machine, settings=HISTORIES)
