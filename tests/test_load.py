"""Eight processes that ask for one key as fast as they can, by the real clock."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event

import pytest

import shmlimit
from shmlimit.rate import Rate

NS_PER_S = 1_000_000_000
SOAK = int(os.environ.get("SHMLIMIT_SOAK", "1"))  # how many times more calls
PROCESSES = 8
PATIENCE_S = 60.0
fork = multiprocessing.get_context("fork")

Told = tuple[int, int, int]  # cells admitted, and the times of the first call and the last answer


class Crowd:
    """The processes, and what they tell. They share the limiter that they inherit."""

    def __init__(self, work: Callable[[Crowd], int]) -> None:
        self.start: Barrier = fork.Barrier(PROCESSES + 1)
        self.stop: Event = fork.Event()
        self._told: Queue[Told] = fork.Queue()
        self._work = work
        self._processes = [fork.Process(target=self._run, daemon=True) for _ in range(PROCESSES)]
        for process in self._processes:
            process.start()

    def _run(self) -> None:
        self.start.wait(PATIENCE_S)
        first_ns = time.monotonic_ns()
        self._told.put((self._work(self), first_ns, time.monotonic_ns()))

    def admitted(self) -> tuple[int, int]:
        """Cells, and in how many ns from the first call of all to the last answer."""
        told = [self._told.get(timeout=PATIENCE_S) for _ in self._processes]
        for process in self._processes:
            process.join(PATIENCE_S)
        assert [process.exitcode for process in self._processes] == [0] * PROCESSES
        cells, firsts_ns, lasts_ns = zip(*told, strict=True)
        return sum(cells), max(lasts_ns) - min(firsts_ns)


@pytest.mark.parametrize("method", ["hit", "allow"])
def test_all_calls_together_admit_the_burst_and_the_rate(segment_name: str, method: str) -> None:
    rate_per_s, burst, calls = 20_000, 100, 100_000 * SOAK
    with shmlimit.Limiter(segment_name, keys=100, a=f"{rate_per_s}/s burst {burst}") as limiter:
        ask = getattr(limiter["a"], method)
        crowd = Crowd(lambda _: sum(1 for _ in range(calls) if ask("x")))
        crowd.start.wait(PATIENCE_S)
        admitted, took_ns = crowd.admitted()
        assert burst < admitted <= burst + rate_per_s * took_ns // NS_PER_S
        counted = limiter.counters()["a"]
        assert counted["allowed"] == admitted
        assert counted["denied"] == PROCESSES * calls - admitted


def decisions(limiter: shmlimit.Limiter) -> int:
    counts = limiter.counters()["a"]
    return counts["allowed"] + counts["denied"]


def test_a_rate_that_alternates_under_load_mints_nothing_beyond_the_first_change(
    segment_name: str,
) -> None:
    fast, slow = Rate.parse("100/s burst 500"), Rate.parse("25/s burst 500")
    transient = 500 - 500 * 25 // 100  # cells, once: what the debt of 500 is worth less
    with shmlimit.Limiter(segment_name, keys=100, a=fast) as limiter:
        allow, publish = limiter["a"].allow, limiter._segment.table.publish

        def work(crowd: Crowd) -> int:
            cells = 0
            while not crowd.stop.is_set():
                cells += sum(allow("x") for _ in range(100))
            return cells

        crowd = Crowd(work)
        crowd.start.wait(PATIENCE_S)
        while not limiter.counters()["a"]["denied"]:
            os.sched_yield()  # until the burst is owed
        for rate in [slow, fast] * 50:
            publish("a", [rate])
            made = decisions(limiter)
            while decisions(limiter) < made + 1000:
                os.sched_yield()  # until others have met that rate
        crowd.stop.set()
        admitted, took_ns = crowd.admitted()
        assert 500 + transient <= admitted <= 500 + transient + 100 * took_ns // NS_PER_S


def test_several_rates_hold_together_over_all_processes(segment_name: str) -> None:
    """What a process takes after another one took the last cell of the slow rate is lost, never too
    much: cells lost are those that the fast rate gave for requests that the slow one refused."""
    calls = 20_000 * SOAK
    with shmlimit.Limiter(
        segment_name, keys=100, a="20000/s burst 100; 5000/s burst 300"
    ) as limiter:
        allow = limiter["a"].allow
        crowd = Crowd(lambda _: sum(1 for _ in range(calls) if allow("x")))
        crowd.start.wait(PATIENCE_S)
        admitted, took_ns = crowd.admitted()
        assert 100 < admitted <= 300 + 5000 * took_ns // NS_PER_S
        counts = limiter.counters()["a"]
        assert (counts["allowed"], counts["cells"]) == (admitted, admitted)
        assert counts["denied"] == PROCESSES * calls - admitted
        assert admitted + counts["lost"] <= 100 + 20_000 * took_ns // NS_PER_S
        print(f"{admitted} admitted, {counts['lost']} lost")
        limiter.check()
