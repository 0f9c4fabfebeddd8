"""The decorator: which calls pass, what a refusal is, and what stays of the function."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import Iterator

import pytest

import shmlimit
from shmlimit import CostExceedsBurst, Limit, Limiter, RateLimitExceeded, ShmlimitError
from tests.conftest import Clock

NS_PER_S = 1_000_000_000


@pytest.fixture
def limiter(segment_name: str, clock: Clock) -> Iterator[Limiter]:
    with Limiter(segment_name, keys=100, workers=1, clock=clock, a="2/m", b="1/m") as made:
        yield made


@pytest.fixture
def limit(limiter: Limiter) -> Limit:
    return limiter["a"]


def test_calls_pass_until_the_limit_refuses_and_then_the_function_does_not_run(
    limit: Limit, clock: Clock
) -> None:
    ran = []

    @limit.limited(key="all")
    def work(number: int) -> int:
        ran.append(number)
        return number * 2

    assert [work(1), work(number=2)] == [2, 4]
    with pytest.raises(RateLimitExceeded):
        work(3)
    assert ran == [1, 2]
    clock.ns += 30 * NS_PER_S
    assert work(4) == 8


def test_a_refusal_says_what_was_decided(limit: Limit) -> None:
    work = limit.limited(key="all", cost=2)(lambda: None)
    work()
    with pytest.raises(RateLimitExceeded) as refusal:
        work()
    error = refusal.value
    assert isinstance(error, ShmlimitError)
    assert (error.decision.allowed, error.decision.name) == (False, "a")
    assert error.retry_after == error.decision.retry_after == 60.0
    assert str(error) == "limit 'a' refused: try again in 60 s"
    received = pickle.loads(pickle.dumps(error))
    assert type(received) is RateLimitExceeded
    assert (str(received), received.retry_after) == (str(error), 60.0)


def test_a_key_may_be_made_of_the_calls_arguments(limit: Limit) -> None:
    @limit.limited(key=lambda tenant, /, user=0, **_: (tenant, user))
    def work(tenant: str, /, user: int = 0, note: str = "") -> str:
        return f"{tenant} {user} {note}"

    for _ in range(2):
        work("a", 1)
        work("a", user=2, note="x")
        work("b", 1)
    assert [limit.peek(key, 0).remaining for key in [("a", 1), ("a", 2), ("b", 1)]] == [0, 0, 0]
    with pytest.raises(RateLimitExceeded):
        work("a", user=1)
    assert work("a") == "a 0 "


def test_a_method_may_count_by_its_object(limit: Limit) -> None:
    class Client:
        def __init__(self, name: str) -> None:
            self.name = name

        @limit.limited(key=lambda self: self.name)
        def call(self) -> str:
            return self.name

        @staticmethod
        @limit.limited(key="static")
        def still() -> str:
            return "static"

    first, second = Client("first"), Client("second")
    assert [first.call(), first.call(), second.call(), Client.still()] == [
        "first", "first", "second", "static",
    ]  # fmt: skip
    with pytest.raises(RateLimitExceeded):
        first.call()


def test_an_async_function_is_decided_on_when_it_is_awaited(limit: Limit) -> None:
    @limit.limited(key=lambda name: name)
    async def work(name: str) -> str:
        await asyncio.sleep(0)
        return name

    assert inspect.iscoroutinefunction(work)

    async def main() -> None:
        waiting = [work("x") for _ in range(3)]
        assert limit.peek("x", 0).remaining == 2, "nothing was awaited yet"
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert answers[:2] == ["x", "x"]
        assert isinstance(answers[2], RateLimitExceeded)

    asyncio.run(main())


def test_a_generator_function_is_decided_on_when_it_is_called(limit: Limit) -> None:
    @limit.limited(key="all", cost=2)
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    counting = numbers()
    with pytest.raises(RateLimitExceeded):
        numbers()
    assert list(counting) == [1, 2]


def test_the_function_keeps_its_name_its_signature_and_its_annotations(limit: Limit) -> None:
    def work(number: int, *, note: str = "x") -> list[int]:
        """What it does."""
        return [number]

    async def later(number: int) -> None: ...

    for function in (work, later):
        decorated = limit.limited(key="all")(function)
        assert decorated is not function
        assert inspect.signature(decorated) == inspect.signature(function)
        assert (decorated.__name__, decorated.__doc__) == (function.__name__, function.__doc__)


def test_what_was_taken_stays_taken_when_the_function_raises(limit: Limit) -> None:
    @limit.limited(key="all")
    def work() -> None:
        raise KeyError("of the function")

    for _ in range(2):
        with pytest.raises(KeyError, match="of the function"):
            work()
    with pytest.raises(RateLimitExceeded):
        work()


def test_two_limits_may_stand_one_above_the_other(limiter: Limiter) -> None:
    @limiter["a"].limited(key="x")
    @limiter["b"].limited(key="x")
    def work() -> None: ...

    work()
    with pytest.raises(RateLimitExceeded) as refusal:
        work()
    assert refusal.value.decision.name == "b"


def test_shadow_mode_refuses_no_call(segment_name: str, clock: Clock) -> None:
    shadow = shmlimit.LimitConfig("a", shmlimit.Rate.parse_several("1/h"), mode="shadow")
    with Limiter(segment_name, keys=100, clock=clock, a=shadow) as limiter:
        work = limiter["a"].limited(key="x")(lambda: 1)
        assert [work(), work()] == [1, 1]
        assert limiter.counters()["a"]["shadow_denied"] == 1


@pytest.mark.parametrize("key", [None, 1, ["x"], 1.5], ids=repr)
def test_another_key_is_refused_where_it_is_written(limit: Limit, key: object) -> None:
    with pytest.raises(TypeError, match="key: accepted is a str, bytes or tuple, or a callable"):
        limit.limited(key=key)  # type: ignore[arg-type]


def test_a_forgotten_key_is_refused_where_it_is_forgotten(limit: Limit) -> None:
    with pytest.raises(TypeError, match="limited"):
        limit.limited(len)  # type: ignore[call-arg, arg-type]


def test_what_is_no_function_is_refused(limit: Limit) -> None:
    with pytest.raises(TypeError, match="not a classmethod: put @classmethod above it"):
        limit.limited(key="x")(classmethod(lambda cls: None))  # type: ignore[arg-type]


def test_a_call_raises_what_hit_would(limiter: Limiter, limit: Limit) -> None:
    with pytest.raises(CostExceedsBurst):
        limit.limited(key="x", cost=3)(lambda: None)()
    with pytest.raises(TypeError, match="a key is a str, bytes or a tuple, not int"):
        limit.limited(key=lambda: 3)(lambda: None)()  # type: ignore[arg-type, return-value]
    limiter.close()
    with pytest.raises(shmlimit.LimiterClosed):
        limit.limited(key="x")(lambda: None)()
