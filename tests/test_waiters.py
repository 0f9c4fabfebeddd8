"""Four hundred waiters of eight processes in one line, on a clock they share: times are exact."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, defaultdict
from contextlib import closing

import pytest

import shmlimit
from tests.shared_clock import SharedClock, VirtualLoop
from tests.waiters import (
    ALL,
    CANCELLED,
    KILLED,
    PROCESSES,
    TASKS,
    THREADED,
    WAITERS,
    Board,
    Job,
    at_work,
    in_threads,
)

NS_PER_S = 1_000_000_000
INTERVAL_NS, BURST = NS_PER_S // 10, 5
RATE = f"10/s burst {BURST}"
START_NS = 10 * NS_PER_S
CANCEL_NS, KILL_NS = START_NS + 21 * NS_PER_S + 1, START_NS + 22 * NS_PER_S + 1
draw = random.Random(5)
# For 20 s twice as many come as may pass. Some of different processes come at the same instant.
ASKS_NS = [START_NS + 2 * INTERVAL_NS * draw.randrange(1, 101) for _ in ALL]


class ThreadsClock:
    """The shared clock for a process whose threads sleep each for itself."""

    def __init__(self, shared: SharedClock) -> None:
        self._shared = shared
        self.mine = threading.local()

    def __call__(self) -> int:
        return self._shared()

    def sleep(self, seconds: float) -> None:
        self._shared.sleep_until(self.mine.waiter, self() + round(seconds * NS_PER_S))


def threads_by(shared: SharedClock, name: str, board: Board) -> Job:
    def job(waiters: range) -> None:
        clock = ThreadsClock(shared)
        with shmlimit.Limiter(name, keys=100, clock=clock, a=RATE) as limiter:

            def wait(waiter: int) -> None:
                clock.mine.waiter = waiter
                shared.sleep_until(waiter, ASKS_NS[waiter])
                board.write(waiter, "wait_ns", limiter["a"].acquire("x").wait_ns)
                board.write(waiter, "ahead_ns", shared())
                shared.leave(waiter)

            in_threads(wait, waiters)

    return job


def tasks_by(shared: SharedClock, name: str, board: Board, disturbed: bool) -> Job:
    async def crowd(limit: shmlimit.Limit, waiters: range) -> None:
        async def wait(waiter: int) -> None:
            await asyncio.sleep((ASKS_NS[waiter] - START_NS) / NS_PER_S)
            assert shared() == ASKS_NS[waiter]
            board.write(waiter, "wait_ns", (await limit.acquire_async("x")).wait_ns)
            board.write(waiter, "ahead_ns", shared())

        loop = asyncio.get_running_loop()
        tasks = {waiter: loop.create_task(wait(waiter)) for waiter in waiters}
        if disturbed:
            for waiter in set(CANCELLED) & tasks.keys():
                loop.call_at(CANCEL_NS / NS_PER_S, tasks[waiter].cancel)
        for waiter, result in zip(
            waiters, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True
        ):
            assert result is None or (waiter in CANCELLED and tasks[waiter].cancelled())

    def job(waiters: range) -> None:
        sleeper = sleeper_of(waiters)
        with (
            shmlimit.Limiter(name, keys=100, clock=shared, a=RATE) as limiter,
            asyncio.Runner(loop_factory=lambda: VirtualLoop(shared, sleeper)) as runner,
        ):
            runner.run(crowd(limiter["a"], waiters))
            shared.leave(sleeper)

    return job


def sleeper_of(waiters: range) -> int:
    """A loop sleeps as one, a thread for itself, by its own number."""
    return TASKS[0] + (waiters[0] - TASKS[0]) // WAITERS


def line(asks_ns: list[int]) -> tuple[dict[int, list[int]], int]:
    """When those that ask at each instant are to go ahead, and when the bucket is full, in ns."""
    ahead_ns = defaultdict(list)
    full_ns = 0
    for asked_ns in sorted(asks_ns):
        full_ns = max(full_ns, asked_ns) + INTERVAL_NS
        ahead_ns[asked_ns].append(max(full_ns - BURST * INTERVAL_NS, asked_ns))
    return ahead_ns, full_ns


@pytest.mark.parametrize("disturbed", [False, True], ids=["all stay", "some give up or die"])
def test_everybody_in_line_goes_ahead_exactly_at_its_turn(
    segment_name: str, disturbed: bool
) -> None:
    board = Board()
    sleepers = TASKS[0] + PROCESSES - THREADED
    with (
        closing(SharedClock(sleepers, START_NS)) as shared,
        shmlimit.Limiter(segment_name, keys=100, clock=shared, a=RATE) as limiter,
    ):
        with at_work(
            threads_by(shared, segment_name, board),
            tasks_by(shared, segment_name, board, disturbed),
        ) as processes:
            if disturbed:
                shared.conduct(KILL_NS)
                processes[0].kill()
                processes[0].join()
                shared.forget(KILLED)
            shared.conduct()
        assert [process.exitcode for process in processes] == [-9 * disturbed, *[0] * 7]

        expected, full_ns = line(ASKS_NS)
        found = defaultdict(list)
        for waiter in board.went_ahead():
            ahead_ns = board.read(waiter, "ahead_ns")
            assert ahead_ns == ASKS_NS[waiter] + board.read(waiter, "wait_ns"), "to the nanosecond"
            found[ASKS_NS[waiter]].append(ahead_ns)
        for asked_ns, ahead in found.items():
            assert Counter(ahead) <= Counter(expected[asked_ns]), "first come, first served"
        missing = set(ALL) - board.went_ahead()
        assert missing <= ({*CANCELLED, *KILLED} if disturbed else set())
        if disturbed:
            assert min(len(missing & set(CANCELLED)), len(missing & set(KILLED))) > 5
        # Who gave up or died has forfeited its cell; nothing is lost or minted beside that.
        assert limiter["a"].peek("x", 0).reset_after_ns == full_ns - shared()
        for sleeper, sleeps in shared.sleeps.items():
            waiters_of_it = 1 if sleeper < TASKS[0] else WAITERS
            assert sleeps <= 2 * waiters_of_it + 1, "before it asks and once in line: no polling"
