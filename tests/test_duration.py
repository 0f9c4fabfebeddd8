"""Lengths of time as people write them."""

from __future__ import annotations

import pytest

from shmlimit.duration import parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("10s", 10.0),
        ("10", 10.0),
        ("5min", 300.0),
        (" 5 Minutes ", 300.0),
        ("1.5h", 5400.0),
        ("1_000s", 1000.0),
        ("0s", 0.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1s", "1s 5s", "1e3", "ten", "5 parsecs", "nan", "٣s", "1" * 101, "1s\0"]
)
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration_s(text) is None
