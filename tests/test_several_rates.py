"""Limits with several rates: all hold together, and a request is counted once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from shmlimit import CostExceedsBurst, LimitConfig, Limiter, Rate
from tests.conftest import Clock
from tests.oracle import OracleLimit

S = 1_000_000_000  # nanoseconds
TEXT = "2/s; 5/min burst 6"


@pytest.fixture
def limiter(segment_name: str, clock: Clock) -> Iterator[Limiter]:
    with Limiter(segment_name, keys=1000, workers=2, clock=clock, a=TEXT) as limiter:
        yield limiter


def counts(limiter: Limiter) -> dict[str, int]:
    return {name: count for name, count in limiter.counters()["a"].items() if count}


def test_a_request_has_to_fit_all_of_them(limiter: Limiter, clock: Clock) -> None:
    limit = limiter["a"]
    assert limit.rates == (Rate.parse("2/s"), Rate.parse("5/min burst 6"))
    assert [limit.allow("x") for _ in range(3)] == [True, True, False], "two at once"
    clock.ns += S
    assert [limit.allow("x") for _ in range(3)] == [True, True, False]
    clock.ns += S
    assert [limit.allow("x") for _ in range(3)] == [True, True, False]
    clock.ns += S
    refused = limit.hit("x")
    assert not refused
    assert refused.limit == 6, "the slow one decides"
    assert refused.retry_after == pytest.approx(12 - 3)
    clock.ns += refused.retry_after_ns
    assert limit.hit("x")
    assert counts(limiter) == {"allowed": 7, "cells": 7, "denied": 4}
    limiter.check()


def test_the_decision_is_of_the_rate_that_decided(limiter: Limiter, clock: Clock) -> None:
    limit = limiter["a"]
    first = limit.hit("x")
    assert (first.name, first.limit, first.remaining) == ("a", 2, 1), "the fewest remaining"
    limit.hit("x")
    refused = limit.hit("x")
    assert (refused.limit, refused.retry_after_ns) == (2, S // 2)
    assert limit.peek("x", 2).retry_after_ns == S
    clock.ns += 60 * S
    assert limit.peek("x", 0).remaining == 2


def test_a_refusal_takes_nothing_from_any(limiter: Limiter, clock: Clock) -> None:
    limit = limiter["a"]
    for _ in range(10):
        limit.hit("x")  # two pass
    clock.ns += S
    limit.hit("x"), limit.hit("x")
    clock.ns += S
    limit.hit("x"), limit.hit("x")
    for _ in range(100):
        clock.ns += S // 100
        assert not limit.hit("x"), "the slow one is exhausted"
    assert limit.peek("x", 0).remaining == 0
    assert counts(limiter)["cells"] == 6


@pytest.mark.parametrize("text", [TEXT, "5/min burst 6; 2/s", "3/s burst 9; 10/min; 60/h burst 7"])
def test_each_rate_is_what_it_would_be_by_itself(
    segment_name: str, clock: Clock, text: str
) -> None:
    """Random requests against one oracle for each rate."""
    draw = random.Random(text)
    with Limiter(segment_name, keys=1000, workers=1, clock=clock, a=text) as limiter:
        rates = Rate.parse_several(text)
        epoch_ns = limiter._segment.header.epoch_ns
        oracles = [OracleLimit(rate.count, rate.period_ns, rate.burst) for rate in rates]
        for _ in range(2000):
            clock.ns += draw.choice([0, 0, S // 10, S, 10 * S])
            key, cost = draw.choice("xyz"), draw.choice([0, 1, 1, 2])
            now_ns = clock.ns - epoch_ns
            answers = [oracle.peek(key, now_ns, cost) for oracle in oracles]
            fits = all(answer.allowed for answer in answers)
            decision = limiter["a"].hit(key, cost)
            assert decision.allowed == fits
            if fits:
                for oracle in oracles:
                    oracle.hit(key, now_ns, cost)
            else:
                assert decision.retry_after_ns == max(
                    answer.retry_after_ns or 0 for answer in answers
                )


def test_batches_are_decided_in_order_and_checked_first(limiter: Limiter) -> None:
    limit = limiter["a"]
    assert [d.allowed for d in limit.hit_many(["x", "x", "y", "x"])] == [True, True, True, False]
    with pytest.raises(TypeError):
        limit.hit_many(["y", 5])  # type: ignore[list-item]
    assert limit.peek("y", 0).remaining == 1


def test_a_cost_above_the_smallest_burst_can_never_pass(limiter: Limiter) -> None:
    for call in (limiter["a"].hit, limiter["a"].peek, limiter["a"].reserve):
        with pytest.raises(CostExceedsBurst, match="more than the burst of 2 of its rate 2/s"):
            call("x", 3)
    assert limiter["a"].peek("x", 0).remaining == 2


def test_a_reservation_waits_for_the_slowest(limiter: Limiter, clock: Clock) -> None:
    limit = limiter["a"]
    waits = [limit.reserve("x").wait for _ in range(8)]
    assert waits[:6] == pytest.approx([0, 0, 0.5, 1, 1.5, 2])
    assert waits[6:] == pytest.approx([12, 24])
    refused = limit.reserve("x", timeout=20)
    assert not refused
    assert refused.retry_after == pytest.approx(36)
    assert limit.reserve("x", timeout=36).wait == pytest.approx(36), "which took nothing"
    assert counts(limiter) == {"allowed": 9, "cells": 9, "denied": 1}


def test_a_reservation_is_answered_by_the_rate_that_waits_longest(
    limiter: Limiter, clock: Clock
) -> None:
    limit = limiter["a"]
    for _ in range(2):
        limit.reserve("x")
    assert limit.reserve("x").limit == 2, "half a second, the other waits for nothing"
    for _ in range(3):
        limit.reserve("x")
    waiting = limit.reserve("x")
    assert (waiting.limit, waiting.wait_ns) == (6, 12 * S), "both wait"
    assert waiting.remaining == 0


def test_a_charge_is_owed_under_all_rates(limiter: Limiter, clock: Clock) -> None:
    limit = limiter["a"]
    assert limit.charge("x", 4) == 4
    clock.ns += S
    assert not limit.hit("x", 1) or limit.peek("x", 0).remaining == 0
    assert limit.charge("y", 1000) == 11 * 2, "the least that one of them takes"
    assert counts(limiter)["cells"] >= 26


def test_clear_and_reset_forget_under_all_rates(limiter: Limiter, clock: Clock) -> None:
    limit = limiter["a"]
    for forget in ("clear", "reset"):
        limit.hit("x", 2)
        limit.charge("x", 10)
        assert not limit.hit("x")
        if forget == "reset":
            limit.reset()
        else:
            assert limit.clear("x") == "cleared"
        assert limit.peek("x", 0).remaining == 2
        clock.ns += S
        assert limit.hit("x", 2)
        clock.ns += 60 * S


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_modes_hold_for_all_rates(segment_name: str, clock: Clock, mode: str) -> None:
    config = LimitConfig("a", Rate.parse_several(TEXT), mode=mode)
    with Limiter(segment_name, keys=1000, clock=clock, a=config) as limiter:
        decisions = [limiter["a"].hit("x") for _ in range(5)]
        assert all(decisions)
        shadow = [decision.shadow for decision in decisions]
        assert shadow == [mode == "shadow" and i >= 2 for i in range(5)]
        expected = {"allowed": 2, "cells": 2, "shadow_denied": 3} if mode == "shadow" else {}
        assert counts(limiter) == expected


def test_empty_at_first_holds_for_all_rates(segment_name: str, clock: Clock) -> None:
    config = LimitConfig("a", Rate.parse_several(TEXT), initial="empty")
    with Limiter(segment_name, keys=1000, clock=clock, a=config) as limiter:
        assert not limiter["a"].hit("x")
        clock.ns += S
        refused = limiter["a"].hit("x")
        assert (refused.allowed, refused.limit) == (False, 6)


def test_a_lost_race_is_refused_and_counted(segment_name: str) -> None:
    """Another process takes the slow rate's last cell after it was looked at: while the first
    rate's bucket is made, for which the clock is read again."""
    calls: list[Callable[[], object]] = []

    def clock() -> int:
        if calls:
            calls.pop()()
        return 10 * S

    with (
        Limiter(segment_name, keys=1000, clock=clock, a="2/s; 1/h") as limiter,
        Limiter(segment_name, keys=1000, clock=lambda: 10 * S, a="2/s; 1/h") as other,
    ):
        # at the first reading it is looked at, at the second the first rate takes
        calls += [lambda: other["a"].hit("x"), lambda: None]
        refused = limiter["a"].hit("x")
        assert (refused.allowed, refused.limit) == (False, 1)
        assert counts(limiter) == {"allowed": 1, "cells": 1, "denied": 1, "lost": 1}
        limiter.check()


def test_rates_are_added_and_dropped_while_requests_come(segment_name: str, clock: Clock) -> None:
    with Limiter(segment_name, keys=1000, clock=clock, a="2/s") as limiter:
        table, limit = limiter._segment.table, limiter["a"]

        def publish(text: str) -> None:
            rates = Rate.parse_several(text)
            table.publish("a", rates)

        assert limit.hit("x", 2)
        publish("2/s; 3/h")
        assert not limit.hit("x")
        clock.ns += S
        assert limit.hit("x", 2)
        clock.ns += S
        assert limit.hit("x").remaining == 0, "the added one began full"
        clock.ns += S
        assert not limit.hit("x")
        publish("2/s")
        assert limit.hit("x").limit == 2
        assert limit.rates == (Rate.parse("2/s"),)
        publish("2/s; 3/h")
        clock.ns += S
        assert limit.hit("x"), "one that comes back has forgotten"
        limiter.check()


def test_a_publisher_killed_between_two_rates_is_continued_by_the_next(
    segment_name: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second rate's row is there and the first row was not published: a reader goes by one
    rate until the next publication, and sees both then, though no number changes."""
    with Limiter(segment_name, keys=1000, clock=clock, a="2/s") as limiter:
        limit, table = limiter["a"], limiter._segment.table
        limit.hit("x")
        rates = Rate.parse_several("2/s; 1/h")

        def killed(size: int) -> bytes:
            raise InterruptedError

        table.publish("a", rates)
        table.publish("a", rates[:1])
        monkeypatch.setattr("os.urandom", killed)
        with pytest.raises(InterruptedError):
            table.publish("a", rates)
        monkeypatch.undo()
        assert limit.rates == rates[:1]
        table.publish("a", rates)
        clock.ns += S
        assert limit.hit("x").limit == 1


def test_the_limiter_the_config_and_messages_name_all_rates(
    segment_name: str, limiter: Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    assert "2/s; 5/min burst 6" in repr(limiter["a"])
    with Limiter(segment_name, keys=1000, clock=Clock(), a="2/s; 7/min"):
        (message,) = caplog.messages
        assert "runs at 2/s; 5/min burst 6, enforce" in message
        assert "not at 2/s; 7/min, enforce" in message
