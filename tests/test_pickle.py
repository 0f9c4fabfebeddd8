"""What crosses to another process: limiters and limits by name, decisions by value."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shmlimit import Decision, Limit, LimitConfig, Limiter, LimiterClosed, Rate, _core
from shmlimit.segment_opening import attach
from tests.conftest import Clock

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
STATED = (
    "name", "limit", "allowed", "shadow", "remaining", "retry_after", "retry_after_ns",
    "wait", "wait_ns", "reset_after", "reset_after_ns",
)  # fmt: skip


@pytest.fixture
def limiter(segment_name: str) -> Iterator[Limiter]:
    with Limiter(segment_name, keys=100, workers=8, a="100/h", b="1/h") as made:
        yield made


@pytest.fixture
def fake(segment_name: str, clock: Clock) -> Iterator[Limiter]:
    config = LimitConfig("shadow", Rate.parse_several("1/h"), mode="shadow")
    off = LimitConfig("off", Rate.parse_several("1/h"), mode="off")
    with Limiter(segment_name, keys=100, clock=clock, a="3/h", shadow=config, off=off) as made:
        yield made


def stated(decision: Decision) -> dict[str, Any]:
    return {name: getattr(decision, name) for name in STATED}


# To other processes.


def spent_by(limiter: Limiter, cost: int) -> tuple[int, Decision]:
    return os.getpid(), limiter["a"].hit("x", cost)


def spent_of(limit: Limit, cost: int) -> tuple[int, Decision]:
    return os.getpid(), limit.hit("x", cost)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_that_is_sent_a_limiter_or_limit_uses_the_same_table(
    limiter: Limiter, method: str
) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, context) as pool:
        pid, by_limiter = pool.submit(spent_by, limiter, 10).result(60)
        _, by_limit = pool.submit(spent_of, limiter["a"], 20).result(60)
        _, refused = pool.submit(spent_of, limiter["a"], 71).result(60)
    assert pid != os.getpid()
    assert [by_limiter.remaining, by_limit.remaining] == [90, 70]
    assert (refused.allowed, refused.name, refused.limit) == (False, "a", 100)
    assert limiter["a"].peek("x", 0).remaining == 70
    assert limiter.counters()["a"]["cells"] == 30
    assert limiter.path.exists(), "the worker was not the last user"


# Within one process.


def test_where_it_is_open_it_is_the_open_one(limiter: Limiter) -> None:
    for protocol in PROTOCOLS:
        both = {"limiter": limiter, "limit": limiter["a"]}
        received = pickle.loads(pickle.dumps(both, protocol))
        assert received["limiter"] is limiter
        assert received["limit"] is limiter["a"]


def test_where_it_is_not_open_it_is_opened_with_its_limits(limiter: Limiter) -> None:
    pickled = pickle.dumps(limiter["b"])
    limiter["b"].hit("x")
    limiter.close()  # the last user: the table goes
    received = pickle.loads(pickled)
    assert (received.name, str(received.rates[0])) == ("b", "1/h")
    again = received.__reduce__()[1][0]
    assert again is not limiter
    assert again.config == limiter.config
    assert received.hit("x").allowed, "another table, as by Limiter(name, ...)"
    again.close()


def test_one_made_from_a_file_is_opened_without_the_file(segment_name: str, tmp_path: Path) -> None:
    file = tmp_path / "shmlimit.toml"
    file.write_text(
        f'[table]\nname = "{segment_name}"\nkeys = 100\n[limits.a]\nrate = "1/h"\nkey = "ip"\n'
    )
    limiter = Limiter.from_config(file)
    pickled = pickle.dumps(limiter)
    limiter.close()
    file.unlink()
    with pickle.loads(pickled) as received:
        assert received.config.path == file
        assert received["a"].key == "ip"


def test_a_closed_limiter_is_not_pickled(limiter: Limiter) -> None:
    limit = limiter["a"]
    limiter.close()
    for thing in (limiter, limit):
        with pytest.raises(LimiterClosed, match="open it again"):
            pickle.dumps(thing)


def test_a_limiter_with_a_clock_of_its_own_is_not_pickled(fake: Limiter) -> None:
    for thing in (fake, fake["a"]):
        with pytest.raises(TypeError, match="a clock of its own, which another process cannot"):
            pickle.dumps(thing)


def test_a_limit_that_no_limiter_holds_is_not_pickled(limiter: Limiter) -> None:
    segment = attach(limiter.name, os.geteuid(), None)
    try:
        with pytest.raises(TypeError, match="belongs to no Limiter"):
            pickle.dumps(segment.table.limit("a"))
    finally:
        segment.close()


def test_a_copy_of_a_limiter_or_limit_is_itself(fake: Limiter) -> None:
    for thing in (fake, fake["a"]):
        assert copy.copy(thing) is thing
        assert copy.deepcopy(thing) is thing
    fake.close()
    assert copy.deepcopy({"limiter": fake})["limiter"] is fake


# Decisions.


def test_a_decision_is_the_same_after_pickling_and_copying(fake: Limiter, clock: Clock) -> None:
    decisions = [fake[name].hit("x", cost) for name in ("a", "shadow", "off") for cost in (1, 1, 0)]
    clock.ns += 7
    decisions += [fake["a"].hit("x", 3), fake["a"].peek("new"), fake["a"].reserve("x", 3)]
    assert decisions[-1].wait_ns > 0
    assert {decision.allowed for decision in decisions} == {True, False}
    assert {decision.shadow for decision in decisions} == {True, False}
    for decision in decisions:
        for protocol in PROTOCOLS:
            received = pickle.loads(pickle.dumps(decision, protocol))
            assert type(received) is Decision
            assert stated(received) == stated(decision)
        assert stated(copy.copy(decision)) == stated(decision)
        assert stated(copy.deepcopy(decision)) == stated(decision)


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (0, None), (0, b"a"), (1, 0), (1, -1), (1, 2**63), (1, "3"), (2, False), (4, -1),
        (4, 2**64), (5, -1), (5, "1"), (6, -1), (7, 0), (7, 2**64), (7, None),
    ],
    ids=repr,
)  # fmt: skip
def test_values_that_no_decision_has_are_refused(
    fake: Limiter, position: int, value: object
) -> None:
    fake["shadow"].hit("x")
    reduced: Any = fake["shadow"].hit("x").__reduce__()
    make, values = reduced
    changed: Any = (*values[:position], value, *values[position + 1 :])
    with pytest.raises((TypeError, ValueError, OverflowError)):
        make(*changed)


def test_values_at_their_ends_crash_nothing() -> None:
    make: Any = vars(_core)["_decision_again"]
    most = 2**64 - 1
    for retry in (0, most):
        for ahead in (0, most):
            for tolerance in (0, 1, most):
                for interval in (1, most):
                    values = ("a", 2**63 - 1, True, True, retry, ahead, tolerance, interval, most)
                    made = make(*values)
                    assert set(stated(made)) == set(STATED)
                    assert repr(made)
