"""The count of hosts in a table: what changes it, what it divides, and what is told of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmlimit import Limiter
from shmlimit._core import Hosts
from shmlimit.hosts.settings import HostsConfig
from shmlimit.publication import publish_hosts, warn_of_thin_shares
from shmlimit.rate import Rate
from shmlimit.share import Share
from tests.conftest import Clock

GLOBAL, SEVERAL, LOW, WHOLE = "100/s burst 500", "5/s; 100/d", "5/m", "10/s"
FILE = Path("/srv/shop/shmlimit.toml")
SOURCE = "dns:web.example"


@pytest.fixture
def limiter(segment_name: str, clock: Clock) -> Iterator[Limiter]:
    rates = {"a": GLOBAL, "b": SEVERAL, "c": LOW}
    with Limiter(segment_name, keys=100, clock=clock, **rates) as made:  # type: ignore[arg-type]
        made._segment.table.publish("whole", [Rate.parse(WHOLE)], scope="host")
        yield made


@pytest.fixture
def hosts(limiter: Limiter) -> Hosts:
    return limiter._segment.table.hosts


def divided_by(limiter: Limiter, count: int) -> bool:
    for name, text in (("a", GLOBAL), ("b", SEVERAL), ("c", LOW)):
        rates = Rate.parse_several(text)
        assert limiter[name].rates == rates, "what is divided is not lost"
        if limiter[name].shares != tuple(Share.of(rate, count) for rate in rates):
            return False
    assert limiter["whole"].shares == (Share.of(Rate.parse(WHOLE)),)
    return True


def test_a_table_that_was_told_nothing_is_one_hosts(limiter: Limiter) -> None:
    state = limiter.hosts
    assert (state.in_force, state.counted, state.pinned) == (1, 1, None)
    assert (state.source, state.origin) == ("static:1", "read")
    assert (state.read_age, state.failing, state.heartbeat_age) == (None, None, None)
    assert divided_by(limiter, 1)


def test_a_count_divides_all_limits_but_those_of_each_host(limiter: Limiter, hosts: Hosts) -> None:
    for count in (4, 10, 1, 1_000_000, 7):
        assert hosts.read(count, count), "another is in force"
        if count < 1_000_000:  # which is more than the slowest rate can be divided by
            assert divided_by(limiter, count)
    assert not hosts.read(7, 7), "the same again changes nothing"


def test_a_limit_that_is_made_later_is_divided_too(limiter: Limiter, hosts: Hosts) -> None:
    hosts.read(5, 5)
    limiter._segment.table.publish("late", [Rate.parse("10/s")])
    assert limiter["late"].shares == (Share.of(Rate.parse("10/s"), 5),)


def test_a_limit_that_was_removed_comes_back_divided(limiter: Limiter, hosts: Hosts) -> None:
    limiter._segment.table.remove("a")
    hosts.read(5, 5)
    limiter._segment.table.publish("a", [Rate.parse(GLOBAL)])
    assert divided_by(limiter, 5)


def test_buckets_are_kept_as_time(limiter: Limiter, hosts: Hosts, clock: Clock) -> None:
    assert len([d for d in limiter["a"].hit_many(["x"] * 501) if d]) == 500
    hosts.read(10, 10)
    assert not limiter["a"].allow("x")
    clock.ns += 99_000_000  # a cell was ten milliseconds before, and is a hundred now
    assert not limiter["a"].allow("x")
    clock.ns += 1_000_000
    assert limiter["a"].allow("x")
    assert not limiter["a"].allow("x")


def test_the_state_tells_what_was_read_and_when(
    limiter: Limiter, hosts: Hosts, clock: Clock
) -> None:
    hosts.follow(SOURCE, 9)
    assert (limiter.hosts.origin, limiter.hosts.in_force) == ("assumed", 9)
    assert (limiter.hosts.read_count, limiter.hosts.read_age) == (None, None)
    clock.ns += 1_000_000_000
    hosts.read(6, 5)
    clock.ns += 2_000_000_000
    hosts.failed("no answer")
    clock.ns += 3_000_000_000
    hosts.failed("NXDOMAIN")
    state = limiter.hosts
    assert (state.origin, state.in_force, state.read_count) == ("read", 6, 5)
    assert (state.read_age, state.changed_age) == (5.0, 5.0)
    assert (state.failing, state.failure) == (3.0, "NXDOMAIN"), "since the first, for the last"
    hosts.read(6, 6)
    assert (limiter.hosts.failing, limiter.hosts.failure) == (None, "")
    assert (limiter.hosts.read_age, limiter.hosts.changed_age) == (0.0, 5.0)


def test_what_is_assumed_gives_way_and_what_was_read_does_not(
    limiter: Limiter, hosts: Hosts
) -> None:
    hosts.follow(SOURCE, 9)
    assert hosts.assume(8)
    assert divided_by(limiter, 8)
    hosts.read(3, 3)
    assert not hosts.assume(8)
    assert not hosts.follow(SOURCE, 9), "it is followed already"
    assert divided_by(limiter, 3)


def test_a_pin_holds_against_readings_and_sources(limiter: Limiter, hosts: Hosts) -> None:
    assert hosts.pin(4)
    assert not hosts.read(7, 7), "in force is the same"
    assert divided_by(limiter, 4)
    assert not hosts.follow(SOURCE, 9)
    assert divided_by(limiter, 4)
    assert limiter.hosts.counted == 9
    assert hosts.pin(None)
    assert divided_by(limiter, 9)


def test_signs_of_life(limiter: Limiter, hosts: Hosts, clock: Clock) -> None:
    hosts.beat(4_194_303, 123_456_789)
    clock.ns += 1_500_000_000
    state = limiter.hosts
    assert (state.agent_pid, state.agent_start_ticks) == (4_194_303, 123_456_789)
    assert state.heartbeat_age == 1.5


@pytest.mark.parametrize(
    "text", ["a" * 10_000, "é" * 10_000, "nul\0inside", "\ud800", "😀" * 9_999, "x" + "é" * 9_999]
)
def test_a_text_of_any_kind_is_kept_as_far_as_there_is_room(
    limiter: Limiter, hosts: Hosts, text: str
) -> None:
    hosts.failed(text)
    hosts.refuse(text)
    kept = limiter.hosts.failure
    assert kept == limiter.hosts.refusal
    assert len(kept.encode()) > min(len(text), 100) - 4
    assert text.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0").startswith(kept.encode())


def test_division_is_put_right_after_a_publisher_died_before_it(
    limiter: Limiter, hosts: Hosts
) -> None:
    hosts.read(4, 4)
    limiter._segment.table.publish("b", [Rate.parse("1/s")])
    hosts.divide()
    limiter._segment.table.publish("b", Rate.parse_several(SEVERAL))
    assert divided_by(limiter, 4)


# What a configuration says of hosts.


def told(limiter: Limiter, **settings: object) -> None:
    publish_hosts(limiter._segment.table, HostsConfig(**settings), FILE)  # type: ignore[arg-type]


def test_another_source_begins_with_the_larger_of_fallback_and_what_stands(
    limiter: Limiter, hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    told(limiter, source=SOURCE, fallback=3)
    assert (limiter.hosts.counted, limiter.hosts.origin) == (3, "assumed")
    hosts.read(8, 8)
    told(limiter, source="dns:wbe.example", fallback=3)
    assert (limiter.hosts.counted, limiter.hosts.origin) == (8, "assumed")
    told(limiter, source=SOURCE, fallback=12)
    assert limiter.hosts.counted == 12
    told(limiter, source="static:2")
    assert (limiter.hosts.counted, limiter.hosts.origin) == (2, "read")
    assert divided_by(limiter, 2)
    followed = [m for m in caplog.messages if "and follows" in m]
    assert len(followed) == 4
    assert f"followed {SOURCE} and follows dns:wbe.example now, as {FILE} says" in followed[1]


def test_the_same_source_goes_on_with_what_was_read(limiter: Limiter, hosts: Hosts) -> None:
    told(limiter, source=SOURCE, fallback=3)
    told(limiter, source=SOURCE, fallback=5)
    assert limiter.hosts.counted == 5, "nothing was read yet"
    hosts.read(8, 8)
    told(limiter, source=SOURCE, fallback=20)
    assert (limiter.hosts.counted, limiter.hosts.origin) == (8, "read")


def test_other_bounds_count_at_once_though_the_source_fails(limiter: Limiter, hosts: Hosts) -> None:
    told(limiter, source=SOURCE, fallback=8)
    hosts.read(2, 2)
    hosts.failed("no answer")
    told(limiter, source=SOURCE, fallback=8, min=6)
    assert divided_by(limiter, 6)
    told(limiter, source=SOURCE, fallback=4, max=4)
    assert divided_by(limiter, 4)
    assert limiter.hosts.failure == "no answer", "it was no reading"
    assert limiter.hosts.read_count == 2


def test_a_number_in_the_configuration_follows_its_bounds(limiter: Limiter) -> None:
    for settings, count in (
        ({"source": "static:5"}, 5), ({"source": "static:5", "min": 7}, 7),
        ({"source": "static:5"}, 5), ({"source": "static:6"}, 6),
    ):  # fmt: skip
        told(limiter, **settings)
        assert divided_by(limiter, count)


def test_shares_of_less_than_one_request_are_told_with_the_remedy(
    segment_name: str, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with Limiter(segment_name, keys=100, clock=clock, c=LOW, a=GLOBAL) as limiter:
        told(limiter, source="static:10")
        limiter._segment.table.publish("d", [Rate.parse(LOW)], scope="host")
        caplog.clear()
        with caplog.at_level(logging.WARNING, "shmlimit"):
            warn_of_thin_shares(limiter._segment.table)
    (warning,) = caplog.messages
    assert warning.startswith(
        f"limit c of table {segment_name}: 5/min over 10 hosts leaves each 0.5"
    )
    assert 'raise rate and burst to 10 or more, or give the limit scope = "host"' in warning
