"""Fixtures for pytest, there wherever shmlimit is installed.

pytest loads this module in every run: shmlimit itself is imported by the first test that asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from shmlimit.testing import FakeClock, LimiterFactory


@pytest.fixture
def shmlimit_clock() -> FakeClock:
    """The clock of this test's limiters. It stands still: `advance(seconds)`, `advance_ns(ns)`."""
    from shmlimit.testing import FakeClock

    return FakeClock()


@pytest.fixture
def shmlimit_limiter(shmlimit_clock: FakeClock) -> Iterator[LimiterFactory]:
    """Makes limiters: shmlimit_limiter(per_ip="5/s"). They are gone when the test is over."""
    from shmlimit.testing import limiters

    with limiters(shmlimit_clock) as make:
        yield make
