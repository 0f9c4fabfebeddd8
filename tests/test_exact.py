"""Several processes on one table, at one instant: together they admit the burst exactly."""

from __future__ import annotations

import multiprocessing
import random
from collections import Counter
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier

import pytest

import shmlimit
from tests.conftest import Clock

PROCESSES = 4
BURST = 60
TIMEOUT_SECONDS = 60
METHODS = ("hit", "allow", "hit_many")

Admitted = tuple[int, list[int]]  # decisions, and cells admitted by key


def opened(name: str) -> shmlimit.Limiter:
    """In every process the same table, and a clock that stands at the same instant."""
    return shmlimit.Limiter(name, keys=100_000, workers=8, clock=Clock(), a=f"1/h burst {BURST}")


def decide(limit: shmlimit.Limit, method: str, keys: list[str], cost: int) -> list[bool]:
    if method == "hit_many":
        return [d.allowed for d in limit.hit_many(keys, cost)]
    if method == "hit":
        return [limit.hit(key, cost).allowed for key in keys]
    return [limit.allow(key, cost) for key in keys]


def take(
    name: str, start: Barrier, told: Queue[Admitted], method: str, keys: int, cost: int, seed: int
) -> None:
    """Asks for each key more often than the burst allows, over all processes; in its own order."""
    turns = BURST // cost // PROCESSES + 2
    draw = random.Random(seed)
    admitted = [0] * keys
    with opened(name) as limiter:
        start.wait(TIMEOUT_SECONDS)
        order = list(range(keys))
        for _ in range(turns):
            draw.shuffle(order)
            answers = decide(limiter["a"], method, [f"key {key}" for key in order], cost)
            for key, allowed in zip(order, answers, strict=True):
                admitted[key] += cost * allowed
        told.put((turns * keys, admitted))


def together(
    name: str, start_method: str, method: str, keys: int, cost: int = 1
) -> tuple[int, list[int]]:
    """(decisions, cells admitted by key) over all processes."""
    context = multiprocessing.get_context(start_method)
    start = context.Barrier(PROCESSES)
    told: Queue[Admitted] = context.Queue()
    workers = [
        context.Process(  # type: ignore[attr-defined]
            target=take, args=(name, start, told, method, keys, cost, seed)
        )
        for seed in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    answers = [told.get(timeout=TIMEOUT_SECONDS) for _ in workers]
    for worker in workers:
        worker.join(TIMEOUT_SECONDS)
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    return (
        sum(decisions for decisions, _ in answers),
        [sum(cells) for cells in zip(*(admitted for _, admitted in answers), strict=True)],
    )


@pytest.mark.parametrize(
    ("start_method", "method", "cost"),
    [*(("fork", method, cost) for method in METHODS for cost in (1, 7)),
     ("spawn", "allow", 1), ("spawn", "hit_many", 7)],
)  # fmt: skip
def test_one_key_admits_its_burst_exactly(
    segment_name: str, start_method: str, method: str, cost: int
) -> None:
    with opened(segment_name) as limiter:
        _, admitted = together(segment_name, start_method, method, keys=1, cost=cost)
        assert admitted == [BURST // cost * cost]
        assert limiter["a"].peek("key 0", 0).remaining == BURST % cost


@pytest.mark.parametrize(("start_method", "method"), [("fork", "allow"), ("spawn", "hit_many")])
def test_each_of_ten_thousand_keys_admits_its_burst_exactly(
    segment_name: str, start_method: str, method: str
) -> None:
    keys = 10_000
    with opened(segment_name) as limiter:
        decisions, admitted = together(segment_name, start_method, method, keys)
        assert Counter(admitted) == {BURST: keys}
        counts = limiter.counters()["a"]
        assert counts == {
            "allowed": keys * BURST, "denied": decisions - keys * BURST, "cells": keys * BURST,
            "shadow_denied": 0, "contended": 0, "evicted": 0, "full_denied": 0, "full_allowed": 0,
            "lost": 0,
        }  # fmt: skip
        assert limiter.check().live == keys


def test_forked_processes_use_the_inherited_table(segment_name: str) -> None:
    """Without opening anything; each counts in a row of its own."""
    context = multiprocessing.get_context("fork")
    start = context.Barrier(PROCESSES)
    told: Queue[tuple[int, int]] = context.Queue()

    def work(limit: shmlimit.Limit, number: int) -> None:
        start.wait(TIMEOUT_SECONDS)
        told.put((number, sum(limit.allow("x") for _ in range(BURST))))

    with opened(segment_name) as limiter:
        before = sum(limiter["a"].allow("x") for _ in range(10))
        workers = [context.Process(target=work, args=(limiter["a"], n)) for n in range(PROCESSES)]
        for worker in workers:
            worker.start()
        admitted = dict(told.get(timeout=TIMEOUT_SECONDS) for _ in workers)
        for worker in workers:
            worker.join(TIMEOUT_SECONDS)
        assert before + sum(admitted.values()) == BURST
        counts = limiter.counters()["a"]
        assert (counts["allowed"], counts["denied"]) == (BURST, (PROCESSES - 1) * BURST + 10)
        assert sum(c["a"]["allowed"] for c in limiter.worker_counters().values()) == BURST


def test_an_inherited_and_an_attached_table_are_one(segment_name: str) -> None:
    with opened(segment_name) as limiter, opened(segment_name) as again:
        assert limiter["a"].hit("x", 20).remaining == BURST - 20
        assert again["a"].hit("x", 20).remaining == BURST - 40
        assert again["a"].clear("x") == "cleared"
        assert limiter["a"].hit("x").remaining == BURST - 1
        again["a"].reset()
        assert limiter["a"].hit("x").remaining == BURST - 1
