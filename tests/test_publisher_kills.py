"""Publishers killed at each point of a publication: what they leave is old or new, rate by rate,
stops nobody, and is put right by whoever comes next."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from shmlimit import Limit, Limiter
from shmlimit._core import HostsState, Table
from shmlimit.errors import LimitRemoved
from shmlimit.rate import Rate
from shmlimit.share import Share
from tests.conftest import Clock

pytestmark = pytest.mark.skipif(
    os.environ.get("SHMLIMIT_BUILD") != "sync",
    reason="needs a build with sync points; test_builds makes one and runs this",
)

SEVERAL, ONE, LOW = "100/s burst 500; 1000/h", "50/s", "5/min"
NAMES = ("several", "one", "low", "other")
ROW, HOSTS, DIVIDED = 8 + 2, 128 + 2, 1  # sync points: before each word, and around the flip

Publication = Callable[[Table], object]
Rows = dict[str, tuple[object, ...]]

PUBLICATIONS: dict[str, tuple[Publication, int]] = {
    "other numbers, and a rate more": (
        lambda table: table.publish("several", Rate.parse_several("7/s; 70/min; 700/h")),
        3 * ROW,
    ),
    "a rate less": (lambda table: table.publish("several", [Rate.parse("7/s")]), 2 * ROW),
    "a limit more": (
        lambda table: table.publish("other", Rate.parse_several("7/s; 70/min")), 2 * ROW,
    ),
    "a limit less": (lambda table: table.remove("several"), 2 * ROW),
    "a count that was read": (lambda table: table.hosts.read(4, 5), HOSTS + 4 * ROW + DIVIDED),
    "a count by hand": (lambda table: table.hosts.pin(7), HOSTS + 4 * ROW + DIVIDED),
    "another source": (
        lambda table: table.hosts.follow("dns:web.example", 9), HOSTS + 4 * ROW + DIVIDED,
    ),
    "a source that fails": (lambda table: table.hosts.failed("no answer"), HOSTS + DIVIDED),
    "a configuration that is refused": (
        lambda table: table.hosts.refuse("no key"), HOSTS + DIVIDED,
    ),
}  # fmt: skip


@contextmanager
def opened(name: str) -> Iterator[Limiter]:
    limits = {"several": SEVERAL, "one": ONE, "low": LOW}
    with Limiter(name, keys=100, clock=Clock(), **limits) as limiter:  # type: ignore[arg-type]
        limiter._segment.table.hosts.read(2, 2)
        yield limiter


def killed_at(point: int, publish: Publication, table: Table) -> bool:
    """Whether a process that publishes reaches so many sync points; it dies at that one."""
    pid = os.fork()
    if pid == 0:
        os.environ["SHMLIMIT_KILL_AT"] = str(point)
        try:
            publish(table)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0
    return False


def rows_of(table: Table) -> Rows:
    """Each limit's numbers, rate by rate; none when it is not there."""
    found: Rows = {}
    for name in NAMES:
        found[name] = ()
        if name in table.names():
            limit = table.limit(name)
            found[name] = tuple(zip(limit.rates, limit.shares, strict=True))
    return found


def state_of(table: Table) -> HostsState:
    return table.hosts.state()


def expected(publish: Publication, name: str) -> tuple[Rows, HostsState]:
    with opened(name) as limiter:
        publish(limiter._segment.table)
        return rows_of(limiter._segment.table), state_of(limiter._segment.table)


def is_old_or_new(
    found: tuple[object, ...], old: tuple[object, ...], new: tuple[object, ...]
) -> bool:
    return len(found) in {len(old), len(new)} and all(
        each in (old[i : i + 1] + new[i : i + 1]) for i, each in enumerate(found)
    )


def use(limits: list[Limit]) -> None:
    """As a worker that has them since before: a decision, or the news that one is gone."""
    for limit in limits:
        try:
            assert limit.peek("x").allowed
        except LimitRemoved:
            assert limit.name == "several"


@pytest.mark.parametrize("kind", PUBLICATIONS)
def test_a_publisher_that_is_killed_anywhere_leaves_old_or_new(
    kind: str, segment_name: str
) -> None:
    publish, points = PUBLICATIONS[kind]
    rows, state = expected(publish, segment_name)
    seen_rows: list[Rows] = []
    for point in range(1, points + 2):
        with opened(segment_name) as limiter:
            table = limiter._segment.table
            limits = [table.limit(name) for name in table.names()]
            use(limits)
            rows_before, state_before = rows_of(table), state_of(table)
            assert killed_at(point, publish, table) == (point <= points)
            use(limits)
            found = rows_of(table)
            seen_rows.append(found)
            assert state_of(table) in (state_before, state)
            for name in NAMES:
                assert is_old_or_new(found[name], rows_before[name], rows[name])
            limiter.check()

            table.hosts.divide()
            hosts = state_of(table).in_force
            for name in table.names():
                limit = table.limit(name)
                assert limit.shares == tuple(Share.of(rate, hosts) for rate in limit.rates)
            assert not table.hosts.divide()

            publish(table)
            assert (rows_of(table), state_of(table)) == (rows, state)
            limiter.check()
    assert seen_rows[0] == rows_before, "the first point comes before all of it"
    assert seen_rows[-1] == rows, "the last one comes after all of it"


def test_a_count_that_was_cut_short_is_put_right_by_the_next_publication(segment_name: str) -> None:
    with opened(segment_name) as limiter:
        table = limiter._segment.table
        assert killed_at(HOSTS + 3 * ROW, lambda table: table.hosts.read(4, 4), table)
        rates = {name: limiter[name].rates[0] for name in table.names()}
        shares = {name: limiter[name].shares[0] for name in rates}
        divided_by = {
            hosts
            for name in rates
            for hosts in (2, 4)
            if shares[name] == Share.of(rates[name], hosts)
        }
        assert divided_by == {2, 4}, "a part of them is divided anew"
        table.hosts.failed("no answer")
        for name, rate in rates.items():
            assert limiter[name].shares[0] == Share.of(rate, 4)
