"""A new key whose eight slots are all taken: evict, deny, allow; clears and resets that fill slots.

The table here is the smallest: two lines of four slots, which every key has for its candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmlimit
from shmlimit.config import LimitConfig
from shmlimit.rate import Rate
from tests.conftest import Clock

SECOND = 10**9  # ns
SLOTS = 8
FILLERS = [f"filler {number}" for number in range(SLOTS)]

Make = Callable[..., shmlimit.Limiter]


def of(rate: str, when_full: str, mode: str = "enforce") -> LimitConfig:
    return LimitConfig("unnamed", Rate.parse_several(rate), mode=mode, when_full=when_full)


@pytest.fixture
def make(segment_name: str, clock: Clock) -> Iterator[Make]:
    """Makes the limiter on the smallest table, closed at the end."""
    made: list[shmlimit.Limiter] = []

    def limiter(**limits: Any) -> shmlimit.Limiter:
        made.append(shmlimit.Limiter(segment_name, keys=1, workers=1, clock=clock, **limits))
        return made[0]

    yield limiter
    for opened in made:
        opened.close()


def fill(limit: shmlimit.Limit, clock: Clock, step_ns: int = 0) -> None:
    """One cell for each filler, each `step_ns` after the one before."""
    for filler in FILLERS:
        assert limit.hit(filler)
        clock.ns += step_ns


def counts(limiter: shmlimit.Limiter, name: str) -> dict[str, int]:
    """The counters that are not 0."""
    return {which: count for which, count in limiter.counters()[name].items() if count}


# Evict.


def test_evict_hands_the_smallest_debt_on(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 10", "evict"))
    limit = limiter["a"]
    for debt, filler in enumerate(FILLERS, start=2):
        limit.hit(filler, debt)
    taken = limit.hit("new")
    assert taken.allowed
    assert (taken.remaining, taken.retry_after_ns) == (6, 0), (
        "10 - 1 - the 2 of the victim - a tick"
    )
    assert taken.reset_after_ns == 3 * SECOND + 1, "a claim adds a tick"
    assert limit.peek(FILLERS[0], 0).retry_after_ns == 0, "the victim starts full when it is back"
    assert [limit.peek(filler, 0).remaining for filler in FILLERS[1:]] == list(range(7, 0, -1))
    assert counts(limiter, "a") == {"allowed": 9, "cells": 45, "evicted": 1}
    assert limiter.check().live == SLOTS


def test_evictions_lose_no_debt(make: Make, clock: Clock) -> None:
    """The sum of what all slots are ahead grows by what is admitted, whoever owns them."""
    limiter = make(a=of("1/h burst 1000", "evict"))
    limit = limiter["a"]
    admitted = sum(limit.hit(f"key {number}").allowed for number in range(3000))
    assert admitted == 3000
    assert counts(limiter, "a")["evicted"] == 3000 - SLOTS
    furthest_ns = limiter.check().furthest_ahead_ns
    hour_ns = 3600 * SECOND
    assert furthest_ns // hour_ns in (3000 // SLOTS, 3000 // SLOTS + 1), "spread evenly"
    for number in range(3000, 10_000):
        limit.hit(f"key {number}")
    allowed = counts(limiter, "a")["allowed"]
    assert SLOTS * 1000 - SLOTS <= allowed <= SLOTS * 1000, "eight buckets hold eight bursts"


def test_evict_denies_when_no_victim_would_let_it_pass(make: Make, clock: Clock) -> None:
    limiter = make(slow=of("1/h burst 5", "evict"), fast=of("1/s burst 1", "evict"))
    fill(limiter["slow"], clock)
    denied = limiter["fast"].hit("new")
    assert (denied.allowed, denied.remaining) == (False, 0)
    assert counts(limiter, "fast") == {"denied": 1, "full_denied": 1}
    assert [limiter["slow"].hit(filler).remaining for filler in FILLERS] == [3] * SLOTS
    # The debt of an hour and a half would have to be handed to a bucket that holds a second.
    clock.ns += limiter["fast"].peek("new").retry_after_ns - 1
    assert not limiter["fast"].peek("new")
    clock.ns += 1
    assert limiter["fast"].hit("new")


def test_a_victim_need_not_be_of_the_same_limit(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 2", "evict"), b=of("1/m burst 3", "evict"))
    fill(limiter["a"], clock)
    taken = limiter["b"].hit("new")
    assert taken.allowed
    assert taken.reset_after_ns == 61 * SECOND + 1, "a second of debt came along"
    assert (counts(limiter, "a").get("evicted"), counts(limiter, "b")["evicted"]) == (None, 1)


@pytest.mark.parametrize("when_full", ["evict", "deny"])
@pytest.mark.parametrize("cost", [1, 3])
def test_the_wait_that_a_full_set_names_is_exact(
    make: Make, clock: Clock, when_full: str, cost: int
) -> None:
    limiter = make(slow=of("1/h burst 1", when_full), fast=of("1/s burst 3", when_full))
    fill(limiter["slow"], clock, 60 * SECOND)
    denied = limiter["fast"].hit("new", cost)
    assert not denied.allowed
    assert limiter["fast"].peek("new", cost).retry_after_ns == denied.retry_after_ns
    clock.ns += denied.retry_after_ns - 1
    assert not limiter["fast"].hit("new", cost)
    clock.ns += 1
    assert limiter["fast"].hit("new", cost)


# Deny and allow.


def test_deny_refuses_until_a_slot_is_free(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 1", "deny"))
    limit = limiter["a"]
    fill(limit, clock)
    denied = limit.hit("new")
    assert not denied.allowed
    assert (denied.remaining, denied.reset_after_ns) == (0, 0)
    assert denied.retry_after_ns == SECOND + 1, "a slot is free once its end has passed"
    assert not limit.hit(FILLERS[0]), "a known key is stepped as ever"
    assert counts(limiter, "a") == {"allowed": 8, "cells": 8, "denied": 2, "full_denied": 1}
    clock.ns += denied.retry_after_ns
    assert limit.hit("new")
    assert "evicted" not in counts(limiter, "a")


def test_allow_admits_without_recording(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 1", "allow"))
    limit = limiter["a"]
    fill(limit, clock)
    for _ in range(5):
        assert limit.hit("new").allowed
    assert limit.allow("new")
    assert counts(limiter, "a") == {"allowed": 14, "cells": 14, "full_allowed": 6}
    assert not limit.hit(FILLERS[0])
    clock.ns += SECOND + 1
    assert [limit.allow("new") for _ in range(2)] == [True, False], "recorded again"


@pytest.mark.parametrize(("when_full", "allowed"), [("evict", True), ("deny", False),
                                                    ("allow", True)])  # fmt: skip
def test_a_peek_at_a_full_set_foretells_and_writes_nothing(
    make: Make, clock: Clock, when_full: str, allowed: bool
) -> None:
    limiter = make(a=of("1/s burst 5", when_full))
    limit = limiter["a"]
    fill(limit, clock)
    before, counted = limiter.path.read_bytes(), counts(limiter, "a")
    peeked = limit.peek("new")
    assert peeked.allowed is allowed
    assert limiter.path.read_bytes() == before
    assert counts(limiter, "a") == counted
    hit = limit.hit("new")
    assert repr(hit) == repr(peeked)


# Modes.


def test_shadow_mode_refuses_nothing_and_counts_what_it_would(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 1", "deny", "shadow"))
    limit = limiter["a"]
    assert not limit.hit("x").shadow
    passed = limit.hit("x")
    assert (passed.allowed, passed.shadow, bool(passed)) == (True, True, True)
    assert (passed.remaining, passed.retry_after_ns) == (0, SECOND)
    assert limit.allow("x")
    assert limit.peek("x").shadow
    assert [d.shadow for d in limit.hit_many(["x", "y"])] == [True, False]
    fill(limit, clock)
    assert counts(limiter, "a")["full_denied"] == 2, "x and y and six fillers hold the slots"
    assert counts(limiter, "a")["shadow_denied"] == 3 + 2
    assert "denied" not in counts(limiter, "a")


def test_shadow_mode_takes_what_enforcing_would_take(make: Make, clock: Clock) -> None:
    limiter = make(s=of("3/s", "evict", "shadow"), e=of("3/s", "evict", "enforce"))
    for step_ns in (0, 0, 0, 0, SECOND // 3, 1, SECOND, 0, 0, 0, 0):
        clock.ns += step_ns
        shadow, enforced = limiter["s"].hit("x"), limiter["e"].hit("x")
        assert shadow.allowed
        assert shadow.shadow is not enforced.allowed
        assert (shadow.remaining, shadow.retry_after_ns, shadow.reset_after_ns) == (
            enforced.remaining, enforced.retry_after_ns, enforced.reset_after_ns
        )  # fmt: skip


def test_off_mode_does_nothing_at_all(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 1", "deny", "off"))
    limit = limiter["a"]
    for number in range(20):
        assert limit.hit("x").allowed
        assert limit.allow(f"key {number}")
    assert not limit.hit("x").shadow
    assert [d.allowed for d in limit.hit_many(["x", "x"])] == [True, True]
    assert limiter.check().unused == SLOTS
    assert counts(limiter, "a") == {}
    assert limit.mode == "off"
    with pytest.raises(TypeError, match="a key is a str, bytes or a tuple"):
        limit.hit(1)  # type: ignore[arg-type]
    with pytest.raises(shmlimit.CostExceedsBurst):
        limit.hit("x", 2)


# Clear and reset.


def test_clear_forgets_one_key(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 2", "deny"))
    limit = limiter["a"]
    for key in ("x", "y"):
        limit.hit(key, 2)
    assert limit.clear("x") == "cleared"
    assert limit.clear("never seen") == "cleared"
    assert limit.peek("x", 0).reset_after_ns == 0
    assert limit.hit("x", 2)
    assert not limit.hit("y")
    assert limiter.check().abandoned == 1
    clock.ns += 2 * SECOND + 2
    assert limiter.check().abandoned == 0, "an abandoned slot ends when its debt would have"


def test_clears_stop_while_two_dead_slots_are_left(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 1", "deny"))
    limit = limiter["a"]
    for _ in range(SLOTS - 2):  # each leaves an abandoned slot behind
        assert limit.hit("x")
        assert limit.clear("x") == "cleared"
    assert limit.hit("x")
    before = limiter.path.read_bytes()
    assert limit.clear("x") == "set_full"
    assert limiter.path.read_bytes() == before, "nothing changed"
    assert not limit.hit("x")
    clock.ns += SECOND + 2
    assert limit.hit("x")
    assert limit.clear("x") == "cleared"


@pytest.mark.parametrize(("strangers", "answer"), [(5, "cleared"), (6, "set_full"),
                                                   (7, "set_full")])  # fmt: skip
def test_a_live_stranger_is_no_home_for_a_cleared_key(
    make: Make, clock: Clock, strangers: int, answer: str
) -> None:
    limiter = make(a=of("1/s burst 1", "evict"), b=of("1/h burst 1", "evict"))
    for filler in FILLERS[:strangers]:
        limiter["b"].hit(filler)
    limiter["a"].hit("x")
    assert limiter["a"].clear("x") == answer
    assert limiter["a"].hit("x").allowed is (answer == "cleared")


def test_reset_forgets_every_key_of_one_limit(make: Make, clock: Clock) -> None:
    limiter = make(a=of("1/s burst 2", "deny"), b=of("1/s burst 2", "deny"))
    for key in ("x", "y", "z"):
        limiter["a"].hit(key, 2)
    limiter["b"].hit("x", 2)
    told = limiter["a"].reset()
    assert told == (4, 2 * SECOND)
    assert (told.occupied_slots, told.dead_after_ns) == tuple(told)
    assert [limiter["a"].allow(key) for key in ("x", "y", "z")] == [True] * 3
    assert not limiter["b"].allow("x")
    clock.ns += told.dead_after_ns + 1
    assert limiter.check().live == 0
    assert limiter["a"].reset().occupied_slots == 0
