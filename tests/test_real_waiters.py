"""Four hundred waiters of eight processes in one line, by the real clock, as in a service.

`make soak` has them wait at ten a second, for forty seconds.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from itertools import pairwise
from unittest.mock import patch

import shmlimit
from tests.waiters import (
    ALL,
    CANCELLED,
    KILLED,
    PROCESSES,
    WAITERS,
    Board,
    Job,
    at_work,
    in_threads,
)

NS_PER_S = 1_000_000_000
SOAK = int(os.environ.get("SHMLIMIT_SOAK", "1"))  # from 2 on they wait long
RATE_PER_S = 10 if SOAK >= 2 else 200
SPAN_S = len(ALL) / RATE_PER_S
LATE_NS = 10 * NS_PER_S  # that a busy machine may wake somebody up


def ask_after_s(waiter: int) -> float:
    """They come in an order that mixes the processes."""
    return random.Random(waiter).random() * SPAN_S / 8


def in_threads_of(name: str, board: Board) -> Job:
    def job(waiters: range) -> None:
        mine = threading.local()
        sleep = time.sleep

        def sleep_in_line(seconds: float) -> None:
            board.write(mine.waiter, "in_line_ns", time.monotonic_ns())
            sleep(seconds)

        with shmlimit.Limiter(name, keys=100, a=f"{RATE_PER_S}/s burst 1") as limiter:

            def wait(waiter: int) -> None:
                mine.waiter = waiter
                sleep(ask_after_s(waiter))
                board.write(waiter, "asked_ns", time.monotonic_ns())
                board.write(waiter, "wait_ns", limiter["a"].acquire("x").wait_ns)
                board.write(waiter, "ahead_ns", time.monotonic_ns())

            with patch.object(time, "sleep", sleep_in_line):
                in_threads(wait, waiters)

    return job


def in_tasks_of(name: str, board: Board) -> Job:
    sleep = asyncio.sleep

    async def sleep_in_line(seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        board.write(int(task.get_name()), "in_line_ns", time.monotonic_ns())
        await sleep(seconds)

    async def wait(limit: shmlimit.Limit, waiter: int) -> None:
        await sleep(ask_after_s(waiter))
        board.write(waiter, "asked_ns", time.monotonic_ns())
        board.write(waiter, "wait_ns", (await limit.acquire_async("x")).wait_ns)
        board.write(waiter, "ahead_ns", time.monotonic_ns())

    async def crowd(limit: shmlimit.Limit, waiters: range) -> None:
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(wait(limit, w), name=str(w)) for w in waiters]
        for waiter, task in zip(waiters, tasks, strict=True):
            if waiter in CANCELLED:
                loop.call_later(SPAN_S / 2, task.cancel)
        for task, result in zip(
            tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True
        ):
            assert result is None or task.cancelled()

    def job(waiters: range) -> None:
        with (
            shmlimit.Limiter(name, keys=100, a=f"{RATE_PER_S}/s burst 1") as limiter,
            patch.object(asyncio, "sleep", sleep_in_line),
        ):
            asyncio.run(crowd(limiter["a"], waiters))

    return job


def cpu_of_children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def test_waiters_wait_for_real_and_take_no_processor_for_it(segment_name: str) -> None:
    board = Board()
    cpu_s = cpu_of_children_s()
    with shmlimit.Limiter(segment_name, keys=100, a=f"{RATE_PER_S}/s burst 1"):
        with at_work(
            in_threads_of(segment_name, board), in_tasks_of(segment_name, board)
        ) as processes:
            time.sleep(SPAN_S / 4)
            processes[0].kill()
        assert [process.exitcode for process in processes] == [-9, *[0] * 7]
    cpu_s = cpu_of_children_s() - cpu_s

    ahead = sorted(board.went_ahead(), key=lambda waiter: board.read(waiter, "ahead_ns"))
    missing = set(ALL) - set(ahead)
    assert missing <= {*CANCELLED, *KILLED}
    # A turn is between these two: the limit looked at the clock between the request and the sleep.
    turns_ns = {}
    late_ns = []
    for waiter in ahead:
        asked, in_line, wait, went = (board.read(waiter, field) for field in Board.FIELDS)
        turns_ns[waiter] = asked + wait, (in_line or went) + wait
        assert turns_ns[waiter][0] <= went, "nobody goes ahead before its turn"
        late_ns.append(went - turns_ns[waiter][0])
    print(f"{cpu_s:.2f} s of processors for {SPAN_S:g} s, {len(missing)} gave up or died, "
          f"the others were late by {max(late_ns) / 1e6:.1f} ms at most")  # fmt: skip
    assert max(late_ns) < LATE_NS
    assert_a_line(board, turns_ns)
    assert cpu_s < 1.5 + 0.02 * SPAN_S
    switches = sum(a // WAITERS != b // WAITERS for a, b in pairwise(ahead))
    assert switches > 2 * PROCESSES, "the processes came one after the other: no line to share"


def assert_a_line(board: Board, turns_ns: dict[int, tuple[int, int]]) -> None:
    interval_ns = NS_PER_S // RATE_PER_S
    earliest = sorted(first for first, _ in turns_ns.values())
    latest = sorted(last for _, last in turns_ns.values())
    for i, first in enumerate(earliest):
        for cells, last in enumerate(latest[i:]):
            assert last - first >= cells * interval_ns, "never above the limit"
    for one, (first, last) in turns_ns.items():
        in_line_ns = last - board.read(one, "wait_ns")
        for other, (_, others_last) in turns_ns.items():
            if in_line_ns <= board.read(other, "asked_ns"):
                assert first + interval_ns <= others_last, "first come, first served"
