"""For the tests of code that uses shmlimit: a clock that a test moves, and limiters on it.

The pytest fixtures `shmlimit_clock` and `shmlimit_limiter` are made of these (pytest_shmlimit.py).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from typing import Any, Protocol

from shmlimit.config import LimitConfig
from shmlimit.limiter import Limiter
from shmlimit.rate import Rate

START_NS = 1_000_000_000_000  # any but a small one: no limiter's clock is read before its epoch
NS_PER_S = 1_000_000_000
EXACT_NS = 1 << 51  # 26 days; from here on a float of seconds is off by more than half of one


class FakeClock:
    """A clock that stands still until it is advanced, or until something on it waits:
    Limiter(..., clock=FakeClock()).

    For one process: another one that has the limiter by fork has a copy of the clock, which the
    first no longer moves.
    """

    def __init__(self) -> None:
        self._now_ns = START_NS

    def __call__(self) -> int:
        """The reading, in nanoseconds."""
        return self._now_ns

    def advance(self, seconds: float) -> None:
        """Moves on by seconds >= 0, to the nearest nanosecond, and for the times of months that a
        float cannot tell to the nanosecond, to the last that it may mean: after `retry_after` a
        refused request passes. ValueError: it would go back, or nowhere."""
        if not 0 <= seconds < math.inf:
            raise ValueError(f"a clock is advanced by seconds >= 0, not {seconds!r}")
        if seconds * NS_PER_S < EXACT_NS:
            self._now_ns += round(seconds * NS_PER_S)
        else:
            self._now_ns += math.ceil(Fraction(math.nextafter(seconds, math.inf)) * NS_PER_S)

    def sleep(self, seconds: float) -> None:
        """The same: by this `limit.acquire` waits, without anybody's waiting."""
        self.advance(seconds)

    def advance_ns(self, ns: int) -> None:
        """Moves on by an int of nanoseconds >= 0. ValueError: it would go back."""
        if not isinstance(ns, int):
            raise TypeError(f"nanoseconds are an int, not {ns!r}: for seconds use advance")
        if ns < 0:
            raise ValueError(f"a clock is advanced by nanoseconds >= 0, not {ns}")
        self._now_ns += ns

    def __repr__(self) -> str:
        return f"<FakeClock at {self._now_ns} ns>"


class LimiterFactory(Protocol):
    """Makes a limiter for a test: small, on the test's clock, under a name of its own."""

    def __call__(
        self, *, keys: int = 1000, workers: int = 4, **limits: str | Rate | LimitConfig
    ) -> Limiter:
        """Arguments and errors are those of Limiter."""


@contextmanager
def limiters(clock: FakeClock) -> Iterator[LimiterFactory]:
    """A factory of limiters on that clock. At the end they are closed, and their tables removed,
    also when the test closed them or a process that it started still has them open."""
    with ExitStack() as made:

        def make(
            *, keys: int = 1000, workers: int = 4, **limits: str | Rate | LimitConfig
        ) -> Limiter:
            name = f"pytest-{secrets.token_hex(8)}"
            named: dict[str, Any] = dict(limits)
            limiter = Limiter(name, keys=keys, workers=workers, clock=clock, **named)
            made.callback(limiter.path.unlink, missing_ok=True)
            made.callback(limiter.close)
            return limiter

        yield make
