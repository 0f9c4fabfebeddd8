"""Limiters across forks: whose counters count, and what a child may close."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmlimit
from shmlimit.errors import LimiterClosed
from shmlimit.segment_name import DIRECTORY
from shmlimit.segment_name import segment_name as segment_of
from tests.conftest import Clock

BURST = 1000
RECYCLED = 200  # test_gunicorn_soak_server.py has a thousand


def opened(name: str, workers: int) -> shmlimit.Limiter:
    return shmlimit.Limiter(name, keys=100, workers=workers, clock=Clock(), a=f"1/h burst {BURST}")


class Child:
    """A forked process that works, tells, and lives on until it is killed."""

    def __init__(self, work: Callable[[], object]) -> None:
        told, tells = os.pipe()
        self.alive = True
        self.pid = os.fork()
        if self.pid == 0:
            try:
                work()
                os.write(tells, b"done")
                signal.pause()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(tells)
        with open(told, "rb", buffering=0) as pipe:
            self.worked = pipe.read(4) == b"done"

    def kill(self) -> None:
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.alive = False


Start = Callable[[Callable[[], object]], Child]


@pytest.fixture
def child(segment_name: str) -> Iterator[Start]:
    children: list[Child] = []

    def start(work: Callable[[], object]) -> Child:
        children.append(Child(work))
        assert children[-1].worked
        return children[-1]

    yield start
    for started in children:
        started.kill()
    # The test closed its limiter while they lived, and they were killed: nobody was the last.
    Path(DIRECTORY + segment_of(segment_name, os.geteuid())).unlink(missing_ok=True)


def hits(limit: shmlimit.Limit, count: int) -> Callable[[], object]:
    return lambda: [limit.hit("x") for _ in range(count)]


def allowed(limiter: shmlimit.Limiter) -> dict[int, int]:
    """By pid."""
    return {pid: limits["a"]["allowed"] for pid, limits in limiter.worker_counters().items()}


def test_each_process_counts_in_its_own_row(segment_name: str, child: Start) -> None:
    with opened(segment_name, workers=4) as limiter:
        hits(limiter["a"], 3)()
        first, second = child(hits(limiter["a"], 5)), child(hits(limiter["a"], 7))
        assert allowed(limiter) == {os.getpid(): 3, first.pid: 5, second.pid: 7, 0: 0}
        hits(limiter["a"], 1)()
        assert allowed(limiter)[os.getpid()] == 4


def test_a_child_of_a_child_counts_for_itself(segment_name: str, child: Start) -> None:
    with opened(segment_name, workers=4) as limiter:

        def work() -> None:
            hits(limiter["a"], 2)()
            pid = os.fork()
            if pid == 0:
                hits(limiter["a"], 3)()
                os._exit(0)
            os.waitpid(pid, 0)
            hits(limiter["a"], 4)()

        middle = child(work)
        told = allowed(limiter)
        assert told.pop(middle.pid) == 6
        assert sorted(told.values()) == [0, 3], "the shared row and the grandchild"


def test_a_killed_process_is_continued_in_its_row(segment_name: str, child: Start) -> None:
    with opened(segment_name, workers=1) as limiter:  # this process decides nothing, and has no row
        first = child(hits(limiter["a"], 10))
        assert allowed(limiter) == {first.pid: 10, 0: 0}
        first.kill()
        assert allowed(limiter) == {first.pid: 10, 0: 0}, "nothing is lost with it"
        second = child(hits(limiter["a"], 5))
        assert allowed(limiter) == {second.pid: 15, 0: 0}
        assert limiter.counters()["a"]["allowed"] == 15


def test_recycled_workers_count_on_in_the_same_rows(segment_name: str, child: Start) -> None:
    with opened(segment_name, workers=4) as limiter:
        series = limiter.counters()["a"].keys()
        alive: list[Child] = []
        for number in range(1, RECYCLED + 1):
            alive.append(child(hits(limiter["a"], 1)))
            counts = limiter.counters()["a"]
            assert counts.keys() == series
            assert counts["allowed"] == number, "nothing falls when a worker goes"
            if len(alive) == 3:
                alive.pop(number % 3).kill()
        told = allowed(limiter)
        assert len(told) <= 4 + 1
        assert told[0] == 0, "each had a row of its own"
        assert sum(told.values()) == RECYCLED


def test_processes_without_a_row_share_the_last_one(segment_name: str, child: Start) -> None:
    with opened(segment_name, workers=1) as limiter:
        first = child(hits(limiter["a"], 1))
        child(hits(limiter["a"], 10))
        child(hits(limiter["a"], 100))
        assert allowed(limiter) == {first.pid: 1, 0: 110}
        assert limiter.counters()["a"]["allowed"] == 111


def test_what_a_child_takes_its_parent_sees(segment_name: str, child: Start) -> None:
    with opened(segment_name, workers=4) as limiter:
        child(hits(limiter["a"], 10))
        assert limiter["a"].peek("x", 0).remaining == BURST - 10
        child(lambda: limiter["a"].clear("x"))
        assert limiter["a"].peek("x", 0).remaining == BURST
        hits(limiter["a"], 5)()
        child(limiter["a"].reset)
        assert limiter["a"].peek("x", 0).remaining == BURST


def test_a_child_that_closes_closes_it_for_itself(segment_name: str, child: Start) -> None:
    with opened(segment_name, workers=4) as limiter:

        def work() -> None:
            limiter.close()
            limiter.close()
            with pytest.raises(LimiterClosed):
                limiter["a"].hit("x")

        child(work).kill()
        assert limiter.path.exists()
        assert limiter["a"].hit("x")


CALLS: dict[str, Callable[[shmlimit.Limiter, shmlimit.Limit], object]] = {
    "hit": lambda _, limit: limit.hit("x"),
    "allow": lambda _, limit: limit.allow("x"),
    "peek": lambda _, limit: limit.peek("x"),
    "hit_many": lambda _, limit: limit.hit_many(["x"]),
    "hit_many of nothing": lambda _, limit: limit.hit_many([]),
    "clear": lambda _, limit: limit.clear("x"),
    "reset": lambda _, limit: limit.reset(),
    "rate": lambda _, limit: limit.rates,
    "mode": lambda _, limit: limit.mode,
    "when_full": lambda _, limit: limit.when_full,
    "check": lambda limiter, _: limiter.check(),
    "counters": lambda limiter, _: limiter.counters(),
    "worker_counters": lambda limiter, _: limiter.worker_counters(),
    "by name": lambda limiter, _: limiter["a"].hit("x"),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_limiter_says_so(segment_name: str, call: str) -> None:
    limiter = opened(segment_name, workers=1)
    limit = limiter["a"]
    limit.hit("x")
    limiter.close()
    with pytest.raises(LimiterClosed, match="was closed in this process; open it again"):
        CALLS[call](limiter, limit)
    with opened(segment_name, workers=1) as again:
        assert again["a"].hit("x").remaining == BURST - 1
