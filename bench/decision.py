"""What one decision costs in one process, beside the floor (floor/floor.pyx), in one run.

Every case is measured against its base in the order base, case, case, base, over and over, so that
a drift of the machine meets both alike; a ratio is taken from runs that are neighbours in time.
Times are of the whole loop, `for _ in repeat(None, n): call(key)`; the empty loop is a case too.
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
from time import perf_counter_ns
from types import FunctionType
from typing import Any

import shmlimit
from bench import report
from bench.floor.floor import Floor
from bench.sample import Sample

HOT_KEY = "203.0.113.7"
BATCH = 64  # keys a call of hit_many
KEYS = 1_000_000
# Hot: always in debt and never refused. Random: a visited bucket is live until long after the run.
LIMITS = {"hot": "1000000/s burst 1000000000000", "denied": "1/h", "random": "1/s burst 1000000"}

Run = Callable[[], float]  # one timed loop; nanoseconds a call


def _loop_empty(call: Any, key: str, calls: int) -> float:
    start_ns = perf_counter_ns()
    for _ in repeat(None, calls):
        pass
    return (perf_counter_ns() - start_ns) / calls


def _loop_hot(call: Any, key: str, calls: int) -> float:
    start_ns = perf_counter_ns()
    for _ in repeat(None, calls):
        call(key)
    return (perf_counter_ns() - start_ns) / calls


def _loop_over(call: Any, items: Sequence[Any], keys: int) -> float:
    """Each item once: keys in random order, or batches of them. Nanoseconds a key."""
    start_ns = perf_counter_ns()
    for item in items:
        call(item)
    return (perf_counter_ns() - start_ns) / keys


def _loop_over_empty(call: Any, items: Sequence[Any], keys: int) -> float:
    start_ns = perf_counter_ns()
    for _item in items:
        pass
    return (perf_counter_ns() - start_ns) / keys


def _run(loop: Callable[[Any, Any, int], float], call: Any, what: Any, calls: int) -> Run:
    """The loop as code of its own: the interpreter adapts a call site to the one callee it sees,
    as in a server, and would adapt a shared one again and again."""
    assert isinstance(loop, FunctionType)
    own = FunctionType(loop.__code__.replace(), loop.__globals__)
    return lambda: float(own(call, what, calls))


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
    base = _run(_loop_hot, floor.touch, HOT_KEY, calls)
    cases = {
        "empty loop": _run(_loop_empty, None, HOT_KEY, calls),
        "empty method": _run(_loop_hot, floor.empty, HOT_KEY, calls),
        "empty method, cost=1": _run(_loop_hot, floor.empty_of_two, HOT_KEY, calls),
        "dict.get": _run(_loop_hot, known.get, HOT_KEY, calls),
        "allow": _run(_loop_hot, hot.allow, HOT_KEY, calls),
        "hit": _run(_loop_hot, hot.hit, HOT_KEY, calls),
        "peek": _run(_loop_hot, hot.peek, HOT_KEY, calls),
        "allow, denied": _run(_loop_hot, denied.allow, HOT_KEY, calls),
    }
    return [Comparison("floor", case, base, run) for case, run in cases.items()]


def random_comparisons(limiter: shmlimit.Limiter, floor: Floor, keys: int) -> list[Comparison]:
    limit = limiter["random"]
    names = [f"198.51.{i:07}" for i in range(keys)]
    random.Random(1).shuffle(names)  # neither a key object nor its slot is near the one before
    batches = [names[i : i + BATCH] for i in range(0, keys, BATCH)]
    for batch in batches:
        limit.hit_many(batch)
    base = _run(_loop_over, floor.touch, names, keys)
    hit = _run(_loop_over, limit.hit, names, keys)
    many = f"hit_many({BATCH}), a key"
    return [
        Comparison("floor", "empty loop", base, _run(_loop_over_empty, None, names, keys)),
        Comparison("floor", "allow", base, _run(_loop_over, limit.allow, names, keys)),
        Comparison("floor", "hit", base, hit),
        Comparison("hit", many, hit, _run(_loop_over, limit.hit_many, batches, keys)),
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
    calls, keys, rounds = (20_000, 100_000, 3) if arguments.quick else (200_000, KEYS, 25)
    with shmlimit.Limiter(
        f"bench-{os.getpid()}", keys=keys, hot=LIMITS["hot"], denied=LIMITS["denied"],
        random=LIMITS["random"],
    ) as limiter:  # fmt: skip
        slots_bytes = keys * 32
        memory = mmap.mmap(-1, slots_bytes)  # shared memory as well, as large as the table's slots
        memory.write(bytes(slots_bytes))
        floor = Floor(memory)
        hot = hot_comparisons(limiter, floor, calls)
        measure(hot, rounds)
        show(f"one hot key, {calls} calls a run, {2 * rounds} runs a case (median ±MAD)", hot)
        cold = random_comparisons(limiter, floor, keys)
        measure(cold, max(rounds // 3, 1))
        runs = 2 * max(rounds // 3, 1)
        show(f"{keys} keys in random order, once each a run, {runs} runs a case", cold)
    groups = {"hot": hot, "random": cold}
    report.write(
        arguments.json,
        {"decision": {name: [c.as_json() for c in group] for name, group in groups.items()}},
    )


if __name__ == "__main__":
    main()
