"""What is a key, what is a cost, and what the errors say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import shmlimit
from shmlimit.errors import CostExceedsBurst, ShmlimitError
from tests.conftest import Clock

BURST = 5
# Every method that takes a key and decides.
METHODS = ("hit", "allow", "peek", "hit_many")


@pytest.fixture
def limiter(segment_name: str, clock: Clock) -> Iterator[shmlimit.Limiter]:
    with shmlimit.Limiter(
        segment_name, keys=1000, workers=1, clock=clock, a=f"1/h burst {BURST}", b="1/h burst 2"
    ) as made:
        yield made


@pytest.fixture
def limit(limiter: shmlimit.Limiter) -> shmlimit.Limit:
    return limiter["a"]


def called(limit: shmlimit.Limit, method: str) -> Callable[..., object]:
    """The method as a function of one key and perhaps a cost."""
    if method == "hit_many":
        return lambda key, *cost: limit.hit_many([key], *cost)
    function: Callable[..., object] = getattr(limit, method)
    return function


def remaining(limit: shmlimit.Limit, key: str | bytes) -> int:
    return limit.peek(key, 0).remaining


class Text(str):
    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        raise AssertionError("a key's bytes come from the text itself")


class Bytes(bytes):
    pass


# Keys.


@pytest.mark.parametrize(
    "text",
    ["", "203.0.113.7", "a" * 7, "a" * 8, "a" * 9, "\0", "a\0b", "caf\u00e9", "\u0416" * 40,
     "\u65e5\u672c", "\U0001f6a6", "\x7f\x80", "x" * 2**20, "\u00fc" * 2**19],
    ids=lambda text: f"{text[:6]!a}, {len(text)}",
)  # fmt: skip
def test_a_text_and_its_utf8_bytes_are_one_key(limit: shmlimit.Limit, text: str) -> None:
    spelt: list[str | bytes] = [text, text.encode(), Text(text), Bytes(text.encode())]
    for taken, key in enumerate(spelt, start=1):
        assert limit.hit(key).remaining == BURST - taken
    assert [d.remaining for d in limit.hit_many([text])] == [0]
    assert [remaining(limit, key) for key in spelt] == [0] * 4


def test_keys_that_look_alike_are_apart(limit: shmlimit.Limit) -> None:
    long = "x" * 2**20
    alike: list[str | bytes] = [
        "", "\0", "\0\0", "a", "a\0", "\0a", "A", " a", "a ", "caf\u00e9", "cafe\u0301",
        b"caf\xe9", b"\xff", b"\xff\xff", long, long + "x", long[:-1] + "y", "y" + long[1:],
    ]  # fmt: skip
    for key in alike:
        assert limit.hit(key).remaining == BURST - 1, ascii(key)[:40]


def test_bytes_need_not_be_utf8(limit: shmlimit.Limit) -> None:
    for value in range(256):
        assert limit.hit(bytes([value])).remaining == BURST - 1
    assert remaining(limit, "\x7f") == BURST - 1
    assert remaining(limit, "\x80") == BURST, "two bytes in UTF-8"


def test_limits_do_not_share_keys(limiter: shmlimit.Limiter) -> None:
    assert [limiter["a"].allow("x") for _ in range(BURST + 1)] == [True] * BURST + [False]
    assert [limiter["b"].allow("x") for _ in range(3)] == [True, True, False]
    assert limiter["a"].clear("x") == "cleared"
    assert not limiter["b"].allow("x")


@pytest.mark.parametrize("method", [*METHODS, "clear"])
@pytest.mark.parametrize("key", ["\ud800", "a\udfff", "\udc80" * 100], ids=ascii)
def test_a_lone_surrogate_is_refused(limit: shmlimit.Limit, method: str, key: str) -> None:
    with pytest.raises(ValueError, match=r"lone surrogate.*pass bytes, for example os\.fsencode"):
        called(limit, method)(key)


@pytest.mark.parametrize("method", [*METHODS, "clear"])
@pytest.mark.parametrize(
    "key",
    [None, 1, 1.5, True, bytearray(b"x"), memoryview(b"x"), ["x"], object],
    ids=lambda key: type(key).__name__,
)
def test_other_types_are_refused(limit: shmlimit.Limit, method: str, key: object) -> None:
    kind = type(key).__name__
    with pytest.raises(TypeError, match=rf"a key is a str, bytes or a tuple, not {kind}: "):
        called(limit, method)(key)


# Costs.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "cost", [True, False, 1.0, 0.5, float("nan"), float("inf"), "1", None, b"1", [1]], ids=repr
)
def test_a_cost_is_an_int(limit: shmlimit.Limit, method: str, cost: object) -> None:
    with pytest.raises(TypeError, match=r"a cost is a whole number of cells \(int >= 0\), not "):
        called(limit, method)("x", cost)
    assert remaining(limit, "x") == BURST


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cost", [-1, -(2**63), -(2**64), -(10**30)])
def test_a_negative_cost_is_refused(limit: shmlimit.Limit, method: str, cost: int) -> None:
    with pytest.raises(ValueError, match=f"a cost is .* >= 0, not {cost}") as refusal:
        called(limit, method)("x", cost)
    assert not isinstance(refusal.value, CostExceedsBurst)
    assert remaining(limit, "x") == BURST


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cost", [BURST + 1, 2**31, 2**63, 2**64 - 1, 2**64, 10**30])
def test_a_cost_that_could_never_pass_is_an_error(
    limit: shmlimit.Limit, method: str, cost: int
) -> None:
    expected = (
        f"limit 'a': cost {cost} is more than the burst of {BURST}, so it can never be admitted; "
        "raise the burst or split the request"
    )
    with pytest.raises(CostExceedsBurst) as refusal:
        called(limit, method)("x", cost)
    assert str(refusal.value) == expected
    assert isinstance(refusal.value, ShmlimitError)
    assert isinstance(refusal.value, ValueError)
    assert remaining(limit, "x") == BURST


class Cells(int):
    pass


def test_a_subclass_of_int_is_a_cost(limit: shmlimit.Limit) -> None:
    assert limit.hit("x", Cells(3)).remaining == BURST - 3
    assert limit.hit("y", cost=BURST).remaining == 0


def test_a_cost_of_zero_only_looks(limiter: shmlimit.Limiter) -> None:
    limit = limiter["a"]
    for call in (limit.hit, limit.peek):
        assert (call("x", 0).allowed, call("x", 0).remaining) == (True, BURST)
    assert limit.allow("x", 0)
    assert [d.remaining for d in limit.hit_many(["x", "y"], 0)] == [BURST, BURST]
    assert limiter.check().unused == limiter.check().slots, "nothing was written"
    assert set(limiter.counters()["a"].values()) == {0}
    limit.hit("x", BURST)
    assert limit.hit("x", 0).allowed, "a drained bucket is at its tolerance, not beyond"


def test_nothing_of_a_batch_is_taken_when_one_key_is_refused(limiter: shmlimit.Limiter) -> None:
    limit = limiter["a"]
    with pytest.raises(TypeError, match="a key is a str, bytes or a tuple"):
        limit.hit_many(["x", "y", 3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="lone surrogate"):
        limit.hit_many(["x", "y", "\ud800"])
    with pytest.raises(CostExceedsBurst):
        limit.hit_many(["x", "y"], BURST + 1)
    with pytest.raises(TypeError, match="not iterable"):
        limit.hit_many(3)  # type: ignore[arg-type]
    assert limiter.check().unused == limiter.check().slots
    assert limit.hit_many([]) == []


def test_a_batch_takes_keys_in_order_from_any_iterable(limit: shmlimit.Limit) -> None:
    batch: list[str | bytes] = ["x", b"x", "y", "x"]
    assert [d.remaining for d in limit.hit_many(iter(batch), 2)] == [3, 1, 3, 1]


def test_where_a_key_lies_differs_from_table_to_table_and_is_one_for_all_who_attach(
    segment_name: str,
) -> None:
    def made() -> int:
        with (
            shmlimit.Limiter(segment_name, keys=100, a="1/s") as limiter,
            shmlimit.Limiter(segment_name, keys=100, a="1/s") as attached,
        ):
            assert attached["a"]._fingerprint("x") == limiter["a"]._fingerprint("x")
            return limiter["a"]._fingerprint("x")

    assert len({made() for _ in range(5)}) == 5
