"""Keys of several items: which tuples are one key, and what the errors say."""

from __future__ import annotations

import enum
import itertools
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shmlimit
from shmlimit import Key
from tests.conftest import Clock
from tests.test_keys import METHODS, Bytes, Text, called

BURST = 5


@pytest.fixture
def limit(segment_name: str, clock: Clock) -> Iterator[shmlimit.Limit]:
    with shmlimit.Limiter(
        segment_name, keys=10_000, workers=1, clock=clock, a=f"1/h burst {BURST}"
    ) as limiter:
        yield limiter["a"]


class Colour(enum.IntEnum):
    RED = 7


Pair = namedtuple("Pair", "tenant user")


def test_tuples_of_equal_items_are_one_key(limit: shmlimit.Limit) -> None:
    spelt: list[Key] = [
        ("caf\u00e9", 7),
        ("caf\u00e9".encode(), 7),
        (Text("caf\u00e9"), Colour.RED),
        Pair(Bytes("caf\u00e9".encode()), 7),
    ]
    for taken, key in enumerate(spelt, start=1):
        assert limit.hit(key).remaining == BURST - taken
    assert [decision.remaining for decision in limit.hit_many(spelt[:1])] == [0]


def test_tuples_that_look_alike_are_apart(limit: shmlimit.Limit) -> None:
    alike: list[Key] = [
        ("a", "bc"), ("ab", "c"), ("abc",), "abc", ("", "abc"), ("abc", ""), ("a", "b", "c"),
        ("bc", "a"), "", ("",), ("", ""), (1,), ("1",), (1, ""), (0,), (-1,), (256,), (2**63 - 1,),
        (-(2**63),), (b"\1\0\0\0\0\0\0\0",), ("\0",), ("\0\0",), ("a\0b",), ("a", "\0b"),
        ("a", b"\1\1\0\0\0\0\0\0\0b"), ("a" * 255,), ("a" * 256,), ("a" * 2**20,), ("a",) * 1000,
    ]  # fmt: skip
    for key in alike:
        assert limit.hit(key).remaining == BURST - 1, ascii(key)[:60]


def test_no_text_is_the_bytes_that_a_tuple_is_counted_by(limit: shmlimit.Limit) -> None:
    """Bytes that whoever knows the format could send: with and without what sets tuples apart."""
    joined = b"\1" + (4).to_bytes(8, "little") + b"user"
    separator = (1).to_bytes(8, "little")
    assert limit.hit(("user",)).remaining == BURST - 1
    for key in (joined, separator + joined, joined + separator):
        assert limit.hit(key).remaining == BURST - 1


items = st.one_of(st.text(max_size=3), st.binary(max_size=3), st.integers(-(2**63), 2**63 - 1))
keys = st.one_of(
    st.text(max_size=30), st.binary(max_size=30), st.lists(items, min_size=1).map(tuple)
)


def canonical(key: Key) -> object:
    """Equal for keys that are one key."""
    if isinstance(key, tuple):
        return tuple(item.encode() if isinstance(item, str) else item for item in key)
    return key.encode() if isinstance(key, str) else key


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=keys.filter(lambda key: _utf8(key)), second=keys.filter(lambda key: _utf8(key)))
def test_keys_are_one_only_when_their_items_are_equal(
    limit: shmlimit.Limit, first: Key, second: Key
) -> None:
    same = limit._fingerprint(first) == limit._fingerprint(second)
    assert same == (canonical(first) == canonical(second))


def _utf8(key: Key) -> bool:
    texts = [item for item in (key if isinstance(key, tuple) else (key,)) if isinstance(item, str)]
    return not any("\ud800" <= letter <= "\udfff" for letter in itertools.chain(*texts))


# What is refused.


@pytest.mark.parametrize("method", [*METHODS, "clear"])
@pytest.mark.parametrize("item", [None, 1.5, True, ("x",), ["x"], bytearray(b"x")], ids=repr)
def test_items_of_other_types_are_refused(limit: shmlimit.Limit, method: str, item: object) -> None:
    kind = type(item).__name__
    with pytest.raises(TypeError, match=rf"an item .* is a str, bytes or int, not {kind}: convert"):
        called(limit, method)(("x", item))


@pytest.mark.parametrize("method", [*METHODS, "clear"])
@pytest.mark.parametrize(
    ("key", "said"),
    [
        ((), "has at least one item"),
        (("x", 2**63), r"at most 64 bits.*convert a larger one, for example str\(item\)"),
        (("x", -(2**63) - 1), "at most 64 bits"),
        (("x", 10**5000), "at most 64 bits"),
        (("x", "\ud800"), r"lone surrogate.*pass bytes"),
    ],
    ids=["empty", "large", "small", "huge", "surrogate"],
)
def test_tuples_that_no_bytes_stand_for_are_refused(
    limit: shmlimit.Limit, method: str, key: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        called(limit, method)(key)


def test_nothing_of_a_batch_is_taken_when_one_tuple_is_refused(limit: shmlimit.Limit) -> None:
    with pytest.raises(ValueError, match="at least one item"):
        limit.hit_many([("x", 1), ()])
    assert limit.peek(("x", 1), 0).remaining == BURST


def test_a_tuple_can_be_cleared(limit: shmlimit.Limit) -> None:
    limit.hit(("x", 1), BURST)
    assert not limit.allow(("x", 1))
    assert limit.clear((b"x", 1)) == "cleared"
    assert limit.hit(("x", 1)).remaining == BURST - 1
