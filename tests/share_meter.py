"""How much a running server admits, read from its table between moments when a bucket is empty."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shmlimit import Limiter
from tests.servers import wait_until

STEADY_NS = 1_000_000  # a sample that took longer was interrupted, and is taken again
WATCH_NS = 100_000_000
LOOK_EVERY_S = 0.000_2  # far less than a cell takes; asleep, it leaves the clients the interpreter


@dataclass(frozen=True)
class Sample:
    at_ns: int
    admitted: int


@dataclass(frozen=True)
class Phase:
    """What one count of hosts let pass."""

    hosts: int
    seconds: float
    admitted: int


class ShareMeter:
    """Of one limit with one key, which is asked for more than it allows all the time.

    A phase lasts from one refusal to another. A bucket that refuses has less than one cell, so that
    what was admitted in between is what the share has let pass, to the cell: stalls of the machine
    make phases longer, and move no cells from one to the next.
    """

    def __init__(self, limiter: Limiter, limit: str) -> None:
        self._limiter = limiter
        self._limit = limit

    def phase(self, seconds: float) -> Phase:
        hosts = self._limiter.hosts.in_force
        begin = self._sample_at_refusal()
        wait_until(lambda: time.monotonic_ns() - begin.at_ns >= seconds * 1e9)
        end = self._sample_at_refusal()
        assert self._limiter.hosts.in_force == hosts, "a phase has one count"
        return Phase(hosts, (end.at_ns - begin.at_ns) / 1e9, end.admitted - begin.admitted)

    def sample(self) -> Sample:
        while True:
            before_ns = time.monotonic_ns()
            admitted = self._limiter.counters()[self._limit]["allowed"]
            if time.monotonic_ns() - before_ns < STEADY_NS:
                return Sample(before_ns, admitted)

    def _sample_at_refusal(self) -> Sample:
        found: list[Sample] = []

        def refused() -> bool:
            before = self._limiter.counters()[self._limit]["denied"]
            deadline_ns = time.monotonic_ns() + WATCH_NS
            while time.monotonic_ns() < deadline_ns:
                sample = self.sample()
                if self._limiter.counters()[self._limit]["denied"] != before:
                    found.append(sample)
                    return True
                time.sleep(LOOK_EVERY_S)
            return False

        wait_until(refused)
        return found[0]
