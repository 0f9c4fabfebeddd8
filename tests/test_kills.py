"""Workers of the real extension killed at random: the sums stay exact up to what was in flight."""

from __future__ import annotations

import mmap
import os
import random
import signal
from collections.abc import Iterator

import pytest

import shmlimit

SOAK = int(os.environ.get("SHMLIMIT_SOAK", "1"))  # how many times longer
KILLS = 300 * SOAK
WORKERS = 4
KEYS = 4000
BURST = 60 * SOAK
GRANTED = 150  # decisions a worker may make until the next kill
WAITED = 100  # decisions of the victim before it is killed, at most: it is still at work then
FROZEN_NS = 10**12


class Book:
    """One worker's account in memory that outlives it: the key in flight, the admissions of each
    key by its number, how often it decided and how often it may."""

    DECISIONS = KEYS + 1
    GRANT = KEYS + 2

    def __init__(self) -> None:
        # One store a number: struct.pack_into clears it first, and a kill in between loses it.
        self.memory = memoryview(mmap.mmap(-1, 8 * (KEYS + 3))).cast("q")

    def read(self, i: int) -> int:
        return self.memory[i]

    def write(self, i: int, value: int) -> None:
        self.memory[i] = value

    def decide(self, limit: shmlimit.Limit, key: int) -> None:
        self.write(0, key)
        if limit.allow(f"key-{key}"):
            self.write(key, self.read(key) + 1)
        self.write(0, 0)
        self.write(self.DECISIONS, self.read(self.DECISIONS) + 1)

    def grant(self, decisions: int) -> int:
        """That many from now on. Returns how many there were."""
        made = self.read(self.DECISIONS)
        self.write(self.GRANT, made + decisions)
        return made

    def wait_for(self, decisions: int) -> None:
        while self.read(self.DECISIONS) < decisions:
            os.sched_yield()

    def wait_for_grant(self) -> None:
        while self.read(self.DECISIONS) >= self.read(self.GRANT):
            os.sched_yield()


@pytest.fixture
def limiter(segment_name: str) -> Iterator[shmlimit.Limiter]:
    with shmlimit.Limiter(
        segment_name, keys=KEYS * 2, workers=8, clock=lambda: FROZEN_NS, k=f"1/h burst {BURST}"
    ) as made:
        yield made


def start(limit: shmlimit.Limit, book: Book, seed: int) -> int:
    pid = os.fork()
    if pid == 0:
        draw = random.Random(seed).randrange
        while True:
            book.wait_for_grant()
            book.decide(limit, draw(1, KEYS + 1))
    return pid


def test_kills_lose_only_what_was_in_flight(limiter: shmlimit.Limiter) -> None:
    limit = limiter["k"]
    draw = random.Random(7)
    books = [Book() for _ in range(WORKERS + 1)]
    pids = [start(limit, books[i], i) for i in range(WORKERS)]
    lost = [0] * (KEYS + 1)
    for kill in range(KILLS + WORKERS):
        victim = draw.randrange(WORKERS) if kill < KILLS else kill - KILLS
        if kill < KILLS:
            made = [book.grant(GRANTED) for book in books[:WORKERS]]
            books[victim].wait_for(made[victim] + draw.randrange(WAITED))
        os.kill(pids[victim], signal.SIGKILL)
        os.waitpid(pids[victim], 0)
        lost[books[victim].read(0)] += 1
        books[victim].write(0, 0)
        if kill < KILLS:
            pids[victim] = start(limit, books[victim], 1000 + kill)
    assert KILLS * WORKERS * GRANTED < KEYS * BURST, "the bursts last longer than the kills"

    for key in range(1, KEYS + 1):  # this process takes what is left, and is refused one more
        for _ in range(BURST + 1):
            books[-1].decide(limit, key)
        admitted = sum(book.read(key) for book in books)
        assert BURST - lost[key] <= admitted <= BURST

    limiter.check()
    assert limiter.counters()["k"]["contended"] == 0
    assert sum(lost[1:]) > 0, "no kill met a call in flight: this run proves nothing"
