"""The rules that turn readings into the count that is enforced, against a plain telling of them."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmlimit.hosts.count import HostCount
from shmlimit.hosts.settings import HostsConfig
from shmlimit.hosts.source import Reading

UNHURRIED = settings(deadline=None)  # a busy machine is no failure


def config(**values: Any) -> HostsConfig:
    return HostsConfig(**{"source": "env:HOSTS", "fallback": 10, "settle": 10, **values})


def host_count(applied: int | None = None, **values: Any) -> HostCount:
    return HostCount(config(**values), applied, jitter=lambda: 1.0)


def good(count: int, read_again_s: float = 5.0) -> Reading:
    return Reading(count, read_again_s)


def test_the_fallback_stands_until_the_first_good_reading_whatever_that_says() -> None:
    for first in (3, 30):
        count = host_count()
        assert (count.count, count.origin, count.age_s(0.0)) == (10, "fallback", None)
        assert not count.failed(0.0, "no answer")
        assert (count.count, count.origin) == (10, "fallback")
        assert count.read(1.0, good(first))
        assert (count.count, count.origin, count.age_s(3.0)) == (first, "source", 2.0)


def test_a_first_reading_that_says_what_the_fallback_said_changes_only_the_origin() -> None:
    count = host_count()
    assert not count.read(0.0, good(10))
    assert (count.count, count.origin) == (10, "source")


def test_a_larger_count_applies_at_once() -> None:
    count = host_count()
    count.read(0.0, good(4))
    assert count.read(0.1, good(5))
    assert count.count == 5


def test_a_smaller_count_applies_when_it_has_stood_for_settle() -> None:
    count = host_count()
    count.read(0.0, good(5))
    for now in (10.0, 15.0, 19.9):
        assert not count.read(now, good(4))
    assert count.count == 5
    assert count.read(20.0, good(4))
    assert count.count == 4


def test_the_largest_of_the_smaller_ones_applies() -> None:
    count = host_count()
    count.read(0.0, good(9))
    count.read(1.0, good(3))
    count.read(6.0, good(4))
    count.read(7.0, good(2))
    assert count.count == 9
    assert count.read(11.0, good(2))
    assert count.count == 4
    assert count.read(17.0, good(2))
    assert count.count == 2


def test_a_count_that_alternates_each_second_never_shrinks() -> None:
    count = host_count()
    seen = []
    for second in range(100):
        count.read(float(second), good(4 + second % 2))
        seen.append(count.count)
    assert seen == [4, *[5] * 99]


def test_a_failure_confirms_nothing_and_the_proof_begins_anew_after_it() -> None:
    count = host_count()
    count.read(0.0, good(5))
    count.read(1.0, good(4))
    assert not count.failed(9.0, "no answer")
    assert not count.read(11.0, good(4))
    assert not count.read(20.9, good(4))
    assert count.read(21.0, good(4))


def test_the_last_good_count_stands_through_failures_of_every_length() -> None:
    count = host_count()
    count.read(0.0, good(4))
    for second in range(1, 10_000, 30):
        assert not count.failed(float(second), "NXDOMAIN")
    assert (count.count, count.origin, count.error) == (4, "source", "NXDOMAIN")
    assert (count.error_since_s, count.age_s(10_000.0)) == (1.0, 10_000.0)
    assert count.read(10_000.0, good(6))
    assert (count.count, count.error, count.error_since_s) == (6, None, None)


def test_two_readings_far_apart_prove_only_the_one_that_stood() -> None:
    count = host_count()
    count.read(0.0, good(5))
    count.read(1.0, good(4))
    count.read(3_600.0, good(1))
    assert count.count == 4


def test_a_settle_of_zero_applies_every_reading() -> None:
    count = host_count(settle=0)
    for now, read in enumerate([5, 4, 6, 1]):
        assert count.read(float(now), good(read))
        assert count.count == read


def test_min_and_max_bound_readings_and_what_was_applied_before() -> None:
    count = host_count(min=3, max=20, settle=0)
    assert count.read(0.0, good(1))
    assert count.count == 3
    assert count.read(1.0, good(1_000))
    assert count.count == 20
    assert host_count(1_000, max=20).count == 20


def test_a_count_applied_before_is_like_one_that_was_read() -> None:
    count = host_count(8)
    assert (count.count, count.origin, count.age_s(5.0)) == (8, "source", None)
    assert not count.read(0.0, good(2))
    assert not count.read(9.9, good(2))
    assert count.read(10.0, good(2))
    assert host_count(8).read(0.0, good(9))


def test_when_to_read_next() -> None:
    count = host_count(settle=20)
    assert count.next_read_at_s == -math.inf, "at once"
    count.read(100.0, good(5, 60.0))
    assert count.next_read_at_s == 160.0
    count.read(160.0, good(4, 60.0))
    assert 180.0 < count.next_read_at_s < 181.0, "just after the smaller count has settled"
    assert count.read(count.next_read_at_s, good(4, 60.0))
    assert count.next_read_at_s > 230.0
    count.read(300.0, good(7, math.inf))
    assert count.next_read_at_s == math.inf


def test_failures_are_retried_after_1_s_doubling_to_at_most_30_s() -> None:
    def waits(count: HostCount, failures: int) -> list[float]:
        seen = []
        for _ in range(failures):
            count.failed(1000.0, "no answer")
            seen.append(count.next_read_at_s - 1000.0)
        return seen

    assert waits(host_count(), 7) == [1, 2, 4, 8, 16, 30, 30]
    count = host_count()
    count.read(0.0, good(4, 5.0))
    assert waits(count, 5) == [1, 2, 4, 5, 5], "no later than a good answer would be read again"
    count.read(2.0, good(4, 0.2))
    assert waits(count, 2000)[-1] == 1
    count = HostCount(config(), jitter=lambda: 0.0)
    assert waits(count, 3) == [0.5, 1, 2], "half of it may be taken off"


def test_each_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shmlimit")
    count = host_count()
    for now in range(5):
        count.failed(float(now), "no answer in time")
    for now in range(5, 10):
        count.failed(float(now), "SERVFAIL" if now % 2 else "no answer in time")
    for now in range(10, 15):
        count.read(float(now), good(4))
    count.read(15.0, good(5))
    count.failed(16.0, "SERVFAIL")
    assert caplog.messages == [
        "hosts: no answer in time; the count stays 10 (fallback)",
        "hosts: SERVFAIL; the count stays 10 (fallback)",
        "hosts: env:HOSTS answers again: 4",
        "hosts: 4 (before: 10), from env:HOSTS",
        "hosts: 5 (before: 4), from env:HOSTS",
        "hosts: SERVFAIL; the count stays 5 (source)",
    ]


def test_reasons_that_differ_each_time_do_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    count = host_count()
    for now in range(1000):
        count.failed(float(now), f"object at {now:#x}")
    assert len(caplog.messages) == 8


# The rule, told plainly: the history is kept whole, and looked through at each reading.

Event = tuple[
    float, int | None
]  # seconds since the one before; a good reading's count, or a failure


def enforced(history: list[Event], settle_s: float, first: int | None) -> list[int | None]:
    """The count after each event; `first` was applied before, None: nothing was read yet."""
    stood: list[tuple[float, int]] = [] if first is None else [(-math.inf, first)]
    now, count = 0.0, first
    counts: list[int | None] = []
    for pause_s, read in history:
        now += pause_s
        if read is not None:
            stood.append((now, read))
            ends_s = [since_s for since_s, _ in stood[1:]] + [math.inf]
            count = max(
                stands
                for (_, stands), end_s in zip(stood, ends_s, strict=True)
                if end_s > now - settle_s
            )
        elif count is not None:
            stood.append((now, count))
        counts.append(count)
    return counts


@UNHURRIED
@given(
    st.lists(st.tuples(st.integers(0, 12).map(float), st.none() | st.integers(1, 8)), max_size=60),
    st.integers(0, 12).map(float),
    st.none() | st.integers(1, 8),
)
def test_the_enforced_count_is_the_largest_that_stood_in_the_last_settle_seconds(
    history: list[Event], settle_s: float, first: int | None
) -> None:
    count = host_count(first, settle=settle_s)
    now = 0.0
    for (pause_s, read), expected in zip(history, enforced(history, settle_s, first), strict=True):
        now += pause_s
        before = count.count
        changed = count.failed(now, "no") if read is None else count.read(now, good(read))
        assert count.count == (10 if expected is None else expected)
        assert changed == (count.count != before)
        assert read is None or count.count >= read
        assert count.next_read_at_s > now


@UNHURRIED
@given(st.lists(st.integers(1, 9), min_size=1), st.integers(1, 5))
def test_reading_when_asked_to_applies_the_last_count_soon_after_settle(
    readings: list[int], last: int
) -> None:
    count = host_count(settle=3)
    now = 0.0
    for read in readings:
        count.read(now, good(read))
        now = count.next_read_at_s
    ends_s = now + 3 + 2 * 5.0
    for _ in range(10):
        if now < ends_s:
            count.read(now, good(last))
            now = count.next_read_at_s
    assert count.count == last
