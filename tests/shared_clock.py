"""A clock that several processes share, on which time passes only while all of them sleep.

The process that made it conducts: when every sleeper sleeps or has left, the clock jumps to the end
of the shortest sleep, and who slept until then goes on. So forty seconds of waiting take as long as
their wake-ups do, and every time is exact.
"""

from __future__ import annotations

import asyncio
import math
import mmap
import multiprocessing
import os
import select
import selectors
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any

NS_PER_S = 1_000_000_000
PATIENCE_S = 60.0  # for a sleeper that is awake, on a machine that may be busy
LEFT = -1
_message = struct.Struct("qq")  # a sleeper's number; until when it sleeps, in ns, or LEFT


class SharedClock:
    """For processes forked after it was made. All sleepers are awake at first.

    Itself it has no `sleep`, so that tasks wait by their event loop: see VirtualLoop.
    """

    def __init__(self, sleepers: int, start_ns: int) -> None:
        self._now = memoryview(mmap.mmap(-1, 8)).cast("q")  # one store a number
        self._now[0] = start_ns
        semaphore = multiprocessing.get_context("fork").Semaphore
        self._wake = [semaphore(0) for _ in range(sleepers)]
        self._told, self._tell = os.pipe()
        self._awake = set(range(sleepers))
        self._asleep: dict[int, int] = {}  # until when, in ns
        self.sleeps: Counter[int] = Counter()  # by sleeper

    def __call__(self) -> int:
        return self._now[0]

    def sleep_until(self, sleeper: int, ns: int) -> None:
        os.write(self._tell, _message.pack(sleeper, ns))  # short enough to be one piece
        self._wake[sleeper].acquire()

    def leave(self, sleeper: int) -> None:
        os.write(self._tell, _message.pack(sleeper, LEFT))

    def forget(self, sleepers: Iterable[int]) -> None:
        """They will never wake up: their process was killed, while all slept."""
        for sleeper in sleepers:
            self._asleep.pop(sleeper, None)

    def conduct(self, until_ns: float = math.inf) -> None:
        """Lets time pass, until then or until all have left. All sleepers sleep when it returns."""
        while True:
            self._listen()
            next_ns = min(self._asleep.values(), default=math.inf)
            if next_ns > until_ns or not self._asleep:
                break
            self._now[0] = int(next_ns)
            for sleeper in [s for s, ns in self._asleep.items() if ns == next_ns]:
                del self._asleep[sleeper]
                self._awake.add(sleeper)
                self._wake[sleeper].release()
        if self._asleep:
            self._now[0] = int(until_ns)

    def _listen(self) -> None:
        while self._awake:
            told, _, _ = select.select([self._told], [], [], PATIENCE_S)
            assert told, f"{len(self._awake)} sleepers are awake and silent"
            sleeper, ns = _message.unpack(os.read(self._told, _message.size))
            self._awake.remove(sleeper)
            if ns != LEFT:
                self._asleep[sleeper] = max(ns, self._now[0])
                self.sleeps[sleeper] += 1

    def close(self) -> None:
        os.close(self._told)
        os.close(self._tell)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop by that clock: the loop is one sleeper, until its next task is due."""

    def __init__(self, clock: SharedClock, sleeper: int) -> None:
        super().__init__(_Selector(clock, sleeper))
        self._clock = clock

    def time(self) -> float:
        return self._clock() / NS_PER_S


class _Selector(selectors.SelectSelector):
    def __init__(self, clock: SharedClock, sleeper: int) -> None:
        super().__init__()
        self._clock = clock
        self._sleeper = sleeper

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "no task is due, ever"
        if (ns := round(timeout * NS_PER_S)) > 0:  # less is what a float has lost
            self._clock.sleep_until(self._sleeper, self._clock() + ns)
        return super().select(0)
