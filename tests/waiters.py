"""Many waiters: eight processes of fifty each, threads in some of them, tasks in the others."""

from __future__ import annotations

import mmap
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkProcess

PATIENCE_S = 60.0  # for what has to happen soon, on a machine that may be busy
PROCESSES, WAITERS = 8, 50  # a process
THREADED = 4  # processes, the first ones; tasks wait in the others
ALL = range(PROCESSES * WAITERS)
TASKS = ALL[THREADED * WAITERS :]
CANCELLED = TASKS[::5]  # these give up
KILLED = ALL[:WAITERS]  # these are of a process that is killed
fork = multiprocessing.get_context("fork")

Job = Callable[[range], None]  # what a process does for its waiters


class Board:
    """What waiters write down about themselves, in memory that outlives them. 0 is nothing yet."""

    FIELDS = ("asked_ns", "in_line_ns", "wait_ns", "ahead_ns")

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, 8 * len(ALL) * len(self.FIELDS))).cast("q")

    def write(self, waiter: int, field: str, value: int) -> None:
        self._words[waiter * len(self.FIELDS) + self.FIELDS.index(field)] = value

    def read(self, waiter: int, field: str) -> int:
        return self._words[waiter * len(self.FIELDS) + self.FIELDS.index(field)]

    def went_ahead(self) -> set[int]:
        return {waiter for waiter in ALL if self.read(waiter, "ahead_ns")}


@contextmanager
def at_work(threads: Job, tasks: Job) -> Iterator[list[ForkProcess]]:
    """The processes. At the end of the block all have ended, by themselves or as the block did."""
    processes = []
    try:
        for number in range(PROCESSES):
            job = threads if number < THREADED else tasks
            waiters = ALL[number * WAITERS : (number + 1) * WAITERS]
            processes.append(fork.Process(target=job, args=(waiters,)))
            processes[-1].start()
        yield processes
        for process in processes:
            process.join(PATIENCE_S)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()


def in_threads(work: Callable[[int], None], waiters: range) -> None:
    threads = [threading.Thread(target=work, args=(waiter,)) for waiter in waiters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
