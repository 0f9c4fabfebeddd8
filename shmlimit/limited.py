"""What `Limit.limited` makes of a function: one whose calls a limit may refuse."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from shmlimit.errors import RateLimitExceeded
from shmlimit.key import Key

if TYPE_CHECKING:
    from shmlimit._core import Limit

P = ParamSpec("P")
R = TypeVar("R")


def limited(
    limit: Limit, key: Key | Callable[..., Key], cost: int
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The decorator; `Limit.limited` says what it does."""
    if callable(key):
        key_of = key
    elif isinstance(key, (str, bytes, tuple)):
        key_of = _always(key)
    else:
        raise TypeError(
            f"key: accepted is a str, bytes or tuple, or a callable that makes one of the call's "
            f"arguments, not {key!r}"
        )

    def ask(arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        decision = limit.hit(key_of(*arguments, **named), cost)
        if not decision:
            raise RateLimitExceeded(decision)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if not callable(function):
            kind = type(function).__name__
            raise TypeError(f"limited decorates functions, not a {kind}: put @{kind} above it")
        if inspect.iscoroutinefunction(function):
            return cast(Callable[P, R], _awaited(function, ask))

        @functools.wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            ask(arguments, named)
            return function(*arguments, **named)

        return call

    return decorate


def _awaited(
    function: Callable[P, Awaitable[R]], ask: Callable[[tuple[Any, ...], dict[str, Any]], None]
) -> Callable[P, Awaitable[R]]:
    @functools.wraps(function)
    async def call(*arguments: P.args, **named: P.kwargs) -> R:
        ask(arguments, named)
        return await function(*arguments, **named)

    return call


def _always(key: Key) -> Callable[..., Key]:
    def same_key(*_: object, **__: object) -> Key:
        return key

    return same_key
