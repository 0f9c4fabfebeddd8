"""What one decision costs in one process, beside the floor (floor/floor.pyx), in one run.

Every case is measured against its base in the order base, case, case, base, over and over, so that
a drift of the machine meets both alike; a ratio is taken from runs that are neighbours in time.
Times are of the whole loop, `for _ in repeat(None, n): call(key)`; the empty loop is a case too.
They are the thread's processor time: turns that other processes had are not in them.
"""

from __future__ import annotations

import argparse
import gc
import mmap
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from time import thread_time_ns
from types import FunctionType
from typing import Any

import shmlimit
from bench import report
from bench.floor.floor import Floor
from bench.sample import Sample

HOT_KEY = "203.0.113.7"
BATCH = 64  # keys a call of hit_many
KEYS = 1_000_000
CALLS = 20_000  # a run: a millisecond or some, short enough for most to go undisturbed
# Hot: always in debt and never refused. Random: a visited bucket is live until long after the run.
LIMITS = {"hot": "1000000/s burst 1000000000000", "denied": "1/h", "random": "1/s burst 1000000"}

Run = Callable[[], float]  # one timed loop; nanoseconds a call or a key


def _loop_empty(call: Any, key: str, calls: int) -> float:
    start_ns = thread_time_ns()
    for _ in repeat(None, calls):
        pass
    return (thread_time_ns() - start_ns) / calls


def _loop_hot(call: Any, key: str, calls: int) -> float:
    start_ns = thread_time_ns()
    for _ in repeat(None, calls):
        call(key)
    return (thread_time_ns() - start_ns) / calls


def _loop_over(call: Any, items: Sequence[Any], keys: int) -> float:
    """Each item once: keys in random order, or batches of them. Nanoseconds a key."""
    start_ns = thread_time_ns()
    for item in items:
        call(item)
    return (thread_time_ns() - start_ns) / keys


def _loop_over_empty(call: Any, items: Sequence[Any], keys: int) -> float:
    start_ns = thread_time_ns()
    for _item in items:
        pass
    return (thread_time_ns() - start_ns) / keys


def _own(loop: Callable[[Any, Any, int], float]) -> Callable[[Any, Any, int], float]:
    """The loop as code of its own: the interpreter adapts a call site to the one callee it sees,
    as in a server, and would adapt a shared one again and again."""
    assert isinstance(loop, FunctionType)
    return FunctionType(loop.__code__.replace(), loop.__globals__)


def hot_run(call: Any, calls: int) -> Run:
    own = _own(_loop_hot)
    return lambda: own(call, HOT_KEY, calls)


class Walk:
    """Keys in random order, a portion a run. A key is met again when all others have been: neither
    a key object nor its slot is in a cache from the last time, or near the one before."""

    def __init__(self, keys: int, portion: int) -> None:
        names = [f"198.51.{i:07}" for i in range(keys)]
        random.Random(1).shuffle(names)
        self.portion = portion
        self.singles = [names[i : i + portion] for i in range(0, keys, portion)]
        self.batches = [
            [names[i : i + BATCH] for i in range(0, portion, BATCH)] for names in self.singles
        ]
        self._next = 0

    def run(self, loop: Callable[[Any, Any, int], float], call: Any, batched: bool = False) -> Run:
        own = _own(loop)

        def run() -> float:
            at = self._next
            self._next = (at + 1) % len(self.singles)
            return own(call, (self.batches if batched else self.singles)[at], self.portion)

        return run


@dataclass
class Comparison:
    """A case beside its base. `loop` names the comparison whose case is the loop of both."""

    base: str
    case: str
    run_base: Run
    run_case: Run
    base_ns: Sample = field(default_factory=Sample)
    case_ns: Sample = field(default_factory=Sample)

    def round(self) -> None:
        self.base_ns.runs.append(self.run_base())
        self.case_ns.runs.append(self.run_case())
        self.case_ns.runs.append(self.run_case())
        self.base_ns.runs.append(self.run_base())

    def row(self, loop_ns: float) -> str:
        ratio = self.case_ns.over(self.base_ns)
        net = self.case_ns.minus(loop_ns).over(self.base_ns.minus(loop_ns))
        return (
            f"{self.case:26} {self.case_ns.shown(1):>14}  {self.base:12} "
            f"{ratio.shown(3):>14} {net.shown(3):>14}"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "case": self.case,
            "base_ns": self.base_ns.runs,
            "case_ns": self.case_ns.runs,
        }


def hot_comparisons(limiter: shmlimit.Limiter, floor: Floor, calls: int) -> list[Comparison]:
    hot, denied = limiter["hot"], limiter["denied"]
    known = {HOT_KEY: 1}
    hot.hit(HOT_KEY)
    while denied.allow(HOT_KEY):
        pass
    base = hot_run(floor.touch, calls)
    empty = _own(_loop_empty)
    cases = {
        "empty loop": lambda: empty(None, HOT_KEY, calls),
        "empty method": hot_run(floor.empty, calls),
        "empty method, cost=1": hot_run(floor.empty_of_two, calls),
        "dict.get": hot_run(known.get, calls),
        "allow": hot_run(hot.allow, calls),
        "hit": hot_run(hot.hit, calls),
        "peek": hot_run(hot.peek, calls),
        "allow, denied": hot_run(denied.allow, calls),
    }
    return [Comparison("floor", case, base, run) for case, run in cases.items()]


def random_comparisons(limiter: shmlimit.Limiter, floor: Floor, walk: Walk) -> list[Comparison]:
    limit = limiter["random"]
    for batches in walk.batches:
        for batch in batches:
            limit.hit_many(batch)
    base = walk.run(_loop_over, floor.touch)
    hit = walk.run(_loop_over, limit.hit)
    many = walk.run(_loop_over, limit.hit_many, batched=True)
    return [
        Comparison("floor", "empty loop", base, walk.run(_loop_over_empty, None)),
        Comparison("floor", "allow", base, walk.run(_loop_over, limit.allow)),
        Comparison("floor", "hit", base, hit),
        Comparison("hit", f"hit_many({BATCH}), a key", hit, many),
    ]


def measure(comparisons: Iterable[Comparison], rounds: int) -> None:
    comparisons = list(comparisons)
    for comparison in comparisons:  # the interpreter adapts each loop, caches fill
        comparison.run_base()
        comparison.run_case()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for comparison in comparisons:
                comparison.round()
    finally:
        gc.enable()


def verify(counters: dict[str, dict[str, int]]) -> None:
    """Refuses figures of another path than the table names."""
    admitted = {name: counters[name]["allowed"] for name in LIMITS}
    denied = {name: counters[name]["denied"] for name in LIMITS}
    if denied["hot"] or denied["random"] or admitted["denied"] > 1 or not denied["denied"]:
        raise RuntimeError(f"measured something else: allowed {admitted}, denied {denied}")


def show(title: str, comparisons: list[Comparison]) -> None:
    loop_ns = comparisons[0].case_ns.median
    floor_ns = Sample([ns for c in comparisons if c.base == "floor" for ns in c.base_ns.runs])
    print(f"\n{title}")
    print(f"{'':26} {'ns a call':>14}  {'base':12} {'ratio':>14} {'without loop':>14}")
    print(f"{'floor':26} {floor_ns.shown(1):>14}")
    for comparison in comparisons:
        print(comparison.row(loop_ns))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.decision", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs: proves nothing")
    parser.add_argument("--json", type=Path, help="where to write every run")
    arguments = parser.parse_args()
    keys, rounds = (200_000, 10) if arguments.quick else (KEYS, 150)
    with shmlimit.Limiter(
        f"bench-{os.getpid()}", keys=keys, hot=LIMITS["hot"], denied=LIMITS["denied"],
        random=LIMITS["random"],
    ) as limiter:  # fmt: skip
        slots_bytes = keys * 32
        memory = mmap.mmap(-1, slots_bytes)  # shared memory as well, as large as the table's slots
        memory.write(bytes(slots_bytes))
        floor = Floor(memory)
        hot = hot_comparisons(limiter, floor, CALLS)
        measure(hot, rounds)
        show(f"one hot key, {2 * rounds} runs a case of {CALLS} calls (median ±MAD)", hot)
        cold = random_comparisons(limiter, floor, Walk(keys, CALLS))
        measure(cold, rounds)
        show(f"{keys} keys in random order, {2 * rounds} runs a case of {CALLS} keys", cold)
        verify(limiter.counters())
    groups = {"hot": hot, "random": cold}
    report.write(
        arguments.json,
        {"decision": {name: [c.as_json() for c in group] for name, group in groups.items()}},
    )


if __name__ == "__main__":
    main()
