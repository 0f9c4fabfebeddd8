"""Several limits on one request: all take, or none does, and what the answer says."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from shmlimit import (
    CostExceedsBurst,
    Decisions,
    LimitConfig,
    Limiter,
    LimiterClosed,
    LimitNotFound,
    Rate,
)
from tests.conftest import Clock

NS_PER_S = 1_000_000_000


@pytest.fixture
def limiter(segment_name: str, clock: Clock) -> Iterator[Limiter]:
    shadow = LimitConfig("shadow", Rate.parse_several("1/h"), mode="shadow")
    with Limiter(
        segment_name, keys=100, clock=clock, wide="5/m", narrow="2/m", slow="1/h", shadow=shadow
    ) as made:
        yield made


def left(limiter: Limiter, **keys: Any) -> list[int]:
    return [limiter[name].peek(key, 0).remaining for name, key in keys.items()]


def test_all_take_when_all_allow(limiter: Limiter) -> None:
    decisions = limiter.hit_all([("wide", "x", 3), ("narrow", ("x", 1)), ("slow", b"x")])
    assert decisions
    assert decisions.allowed
    assert [(d.name, d.allowed, d.remaining) for d in decisions] == [
        ("wide", True, 2), ("narrow", True, 1), ("slow", True, 0),
    ]  # fmt: skip
    assert (decisions.retry_after, decisions.retry_after_ns) == (0.0, 0)
    assert decisions.deciding is decisions[2], "the fewest cells remain there"
    assert left(limiter, wide="x", narrow=("x", 1), slow="x") == [2, 1, 0]


@pytest.mark.parametrize("order", [("wide", "narrow"), ("narrow", "wide")])
def test_none_takes_when_one_refuses(limiter: Limiter, order: tuple[str, str]) -> None:
    limiter["narrow"].hit("x", 2)
    decisions = limiter.hit_all([(name, "x") for name in order])
    assert not decisions
    assert not decisions.allowed
    assert [(d.name, d.allowed) for d in decisions] == [(name, name == "wide") for name in order]
    assert decisions.deciding.name == "narrow"
    assert decisions.retry_after == decisions.deciding.retry_after == 30.0
    assert left(limiter, wide="x", narrow="x") == [5, 0]
    counters = limiter.counters()
    assert (counters["narrow"]["denied"], counters["wide"]["denied"]) == (1, 0)


def test_of_several_that_refuse_the_longest_wait_decides(limiter: Limiter, clock: Clock) -> None:
    request: list[tuple[str, str]] = [("narrow", "x"), ("slow", "x"), ("wide", "x")]
    limiter["narrow"].hit("x", 2)
    limiter["slow"].hit("x")
    decisions = limiter.hit_all(request)
    assert [d.allowed for d in decisions] == [False, False, True]
    assert (decisions.deciding.name, decisions.retry_after_ns) == ("slow", 3600 * NS_PER_S)
    clock.ns += decisions.retry_after_ns - 1
    assert not limiter.hit_all(request)
    clock.ns += 1
    assert limiter.hit_all(request)


def test_one_limit_is_a_plain_hit(limiter: Limiter) -> None:
    assert [bool(limiter.hit_all([("slow", "x")])) for _ in range(2)] == [True, False]
    assert limiter.counters()["slow"] | {"allowed": 1, "denied": 1} == limiter.counters()["slow"]


def test_a_limit_in_shadow_mode_refuses_nothing(limiter: Limiter) -> None:
    request: list[tuple[str, str]] = [("shadow", "x"), ("wide", "x")]
    assert [bool(limiter.hit_all(request)) for _ in range(3)] == [True] * 3
    assert limiter.counters()["shadow"]["shadow_denied"] == 2
    assert limiter.hit_all(request)[0].shadow
    assert left(limiter, wide="x") == [1]


# One bucket, asked for twice.


def test_one_limit_may_be_asked_for_several_keys(limiter: Limiter) -> None:
    assert limiter.hit_all([("slow", "x"), ("slow", "y")])
    assert not limiter.hit_all([("slow", "y"), ("slow", "z")])
    assert left(limiter, slow="z") == [1]


def test_one_key_twice_has_to_fit_together(limiter: Limiter) -> None:
    decisions = limiter.hit_all([("wide", "x", 2), ("narrow", "y"), ("wide", b"x", 3)])
    assert [(d.name, d.remaining) for d in decisions] == [("wide", 0), ("narrow", 1), ("wide", 0)]
    limiter["narrow"].hit("y", 0)
    refused = limiter.hit_all([("narrow", "y"), ("slow", "y"), ("narrow", b"y")])
    assert [d.allowed for d in refused] == [False, True, False]
    assert left(limiter, narrow="y", slow="y") == [1, 1]


def test_one_key_twice_that_could_never_fit_is_an_error(limiter: Limiter) -> None:
    with pytest.raises(CostExceedsBurst, match="cost 6 is more than the burst of 5"):
        limiter.hit_all([("wide", "x", 3), ("wide", "x", 3)])
    for cost in (-1, True, 1.0):
        with pytest.raises((TypeError, ValueError), match="a cost is"):
            limiter.hit_all([("wide", "x", 3), ("wide", "x", cost)])  # type: ignore[list-item]
    assert left(limiter, wide="x") == [5]


# A race, and failures.


def test_a_race_that_is_lost_refuses_and_may_leave_earlier_limits_charged(
    limiter: Limiter, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """The clock runs other code in the middle of a decision, here another request's."""
    calls = itertools.count()

    def read(_: Clock) -> int:
        if next(calls) == 3:  # after three looks, as the first hit begins
            limiter["narrow"].hit("x", 2)
        return clock.ns

    monkeypatch.setattr(Clock, "__call__", read)
    decisions = limiter.hit_all([("wide", "x"), ("narrow", "x"), ("slow", "x")])
    assert not decisions
    assert [d.allowed for d in decisions] == [True, False, True]
    assert decisions.deciding.name == "narrow"
    assert left(limiter, wide="x", slow="x") == [4, 1], "the first is charged, the last is not"
    lost = {name: counts["lost"] for name, counts in limiter.counters().items()}
    assert lost == {"wide": 1, "narrow": 0, "slow": 0, "shadow": 0}


def counted_as_lost(limiter: Limiter) -> dict[str, int]:
    return {name: counts["lost"] for name, counts in limiter.counters().items() if counts["lost"]}


class Interrupted(Clock):
    """Something happens at the reading of that number, counted from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.at: dict[int, Callable[[], object]] = {}
        self.readings = 0

    def __call__(self) -> int:
        self.readings += 1
        self.at.pop(self.readings, lambda: None)()
        return self.ns

    def plan(self, reading: int, act: Callable[[], object]) -> None:
        self.readings, self.at = 0, {reading: act}


@pytest.fixture
def interrupted() -> Interrupted:
    return Interrupted()


def test_what_a_limit_takes_whose_refusal_has_passed_meanwhile_is_lost_too(
    segment_name: str, interrupted: Interrupted
) -> None:
    """Both refuse at the look at them; then one has refilled, and the other still refuses."""
    with Limiter(segment_name, keys=100, clock=interrupted, a="1/s", b="1/h") as limiter:
        limiter["a"].hit("x"), limiter["b"].hit("x")

        def refill() -> None:
            interrupted.ns += 2 * NS_PER_S

        interrupted.plan(3, refill)  # two looks come first
        decisions = limiter.hit_all([("a", "x"), ("b", "x")])
        assert [d.allowed for d in decisions] == [True, False]
        assert not interrupted.at, "it came between"
        assert counted_as_lost(limiter) == {"a": 1}


def test_every_rate_that_took_has_lost_its_cells(
    segment_name: str, interrupted: Interrupted
) -> None:
    with (
        Limiter(segment_name, keys=100, clock=interrupted, a="5/s; 9/h", b="2/h") as limiter,
        Limiter(segment_name, keys=100, clock=lambda: interrupted.ns) as other,
    ):
        limiter["a"].hit("x"), limiter["b"].hit("x")  # all have a slot: one reading a decision
        interrupted.plan(3, lambda: other["b"].hit("x"))
        decisions = limiter.hit_all([("a", "x", 2), ("b", "x")])
        assert [d.allowed for d in decisions] == [True, False]
        assert counted_as_lost(limiter) == {"a": 4}, "two cells under each of two rates"


@pytest.mark.parametrize(
    ("mode", "when_full"), [("shadow", "evict"), ("off", "evict"), ("enforce", "allow")]
)
def test_a_limit_that_took_nothing_has_lost_nothing(
    segment_name: str, interrupted: Interrupted, mode: str, when_full: str
) -> None:
    a = LimitConfig("a", Rate.parse_several("1/h"), mode=mode, when_full=when_full)
    with (
        Limiter(segment_name, keys=1, clock=interrupted, a=a, b="2/h") as limiter,
        Limiter(segment_name, keys=1, clock=lambda: interrupted.ns) as other,
    ):
        limiter["b"].hit("x")
        key = "x" if mode == "shadow" else "y"
        limiter["a"].hit("x")  # in shadow it refuses from now on
        for i in range(20 if when_full == "allow" else 0):  # the table is full
            limiter["a"].hit(f"key {i}")
        # after the looks at both; who is off reads no clock
        interrupted.plan(2 if mode == "off" else 3, lambda: other["b"].hit("x"))
        decisions = limiter.hit_all([("a", key), ("b", "x")])
        assert [d.allowed for d in decisions] == [True, False]
        assert not interrupted.at, "it came between"
        assert counted_as_lost(limiter) == {}


@pytest.mark.parametrize(
    "last", [("nothing", "x"), ("wide", 1), ("wide", "x", -1), ("slow", "x", 2)]
)
def test_nothing_is_taken_when_a_part_of_the_request_is_refused(
    limiter: Limiter, last: Any
) -> None:
    with pytest.raises((LimitNotFound, TypeError, ValueError)):
        limiter.hit_all([("narrow", "x"), last])
    assert left(limiter, narrow="x") == [2]


@pytest.mark.parametrize("request_", ["wide", ("wide",), ("wide", "x", 1, 2), ["wide", "x"], None])
def test_what_is_no_request_is_refused(limiter: Limiter, request_: Any) -> None:
    with pytest.raises(TypeError, match=r"takes tuples \(limit, key\) or \(limit, key, cost\)"):
        limiter.hit_all([request_])


def test_no_request_is_refused(limiter: Limiter) -> None:
    with pytest.raises(ValueError, match=r"give at least one \(limit, key\)"):
        limiter.hit_all([])


def test_a_closed_limiter_decides_nothing(limiter: Limiter) -> None:
    limiter.close()
    with pytest.raises(LimiterClosed):
        limiter.hit_all([("wide", "x"), ("narrow", "x")])


def test_the_answer_is_a_tuple_that_pickles(limiter: Limiter) -> None:
    limiter["slow"].hit("x")
    decisions = limiter.hit_all([("slow", "x"), ("wide", "x")])
    assert isinstance(decisions, tuple)
    received = pickle.loads(pickle.dumps(decisions))
    assert type(received) is Decisions
    assert not received
    assert received.deciding.name == "slow"
