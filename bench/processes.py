"""What two processes decide together, beside one, and beside two that share a lock.

Runs alternate in the order base, case, case, base. Each run forks its processes anew and lets them
decide over a common window; figures are decisions a second, added over the processes.
"""

from __future__ import annotations

import argparse
import mmap
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

import shmlimit
from bench import report
from bench.crew import Loop, Maker, Window, decide
from bench.floor.floor import Bucket
from bench.locks import LOCKS
from bench.sample import Sample

RATE = "1000000/s burst 1000000000000"  # in debt, and never refused
KEYS_EACH = 250
CHUNK_CALLS = 250  # short beside a window, for the slowest lock too
TICKS_PER_S = 16 * 10**9
WAITED_MOST = 0.02  # of a window, for a processor, in a run that counts as undisturbed


@dataclass(frozen=True)
class Case:
    name: str
    makers: Sequence[Maker]

    def run(self, window_ns: int) -> Window:
        return decide(self.makers, window_ns, CHUNK_CALLS)


@dataclass
class Comparison:
    """A case beside its base, as pairs of runs that are neighbours in time.

    The ratio is of decisions a second: more is better.
    """

    base: Case
    case: Case
    pairs: list[tuple[Window, Window]] = field(default_factory=list)

    def round(self, window_ns: int) -> None:
        base, case = self.base.run(window_ns), self.case.run(window_ns)
        self.pairs.append((base, case))
        case, base = self.case.run(window_ns), self.base.run(window_ns)
        self.pairs.append((base, case))

    def undisturbed(self) -> list[tuple[Window, Window]]:
        """The pairs in which nobody had to wait for a processor: others use the machine, too."""
        return [pair for pair in self.pairs if all(w.waited_share < WAITED_MOST for w in pair)]

    def row(self, pairs: list[tuple[Window, Window]]) -> str:
        names = f"{self.case.name:21} {self.base.name:26} {len(pairs):5}"
        if not pairs:
            return names
        base, case = (Sample([pair[i].per_s / 1e6 for pair in pairs]) for i in (0, 1))
        ratio = case.over(base)
        return f"{names} {case.shown(2):>13} {base.shown(2):>13} {ratio.shown(2):>13}"

    def as_json(self) -> dict[str, Any]:
        return {
            "base": self.base.name,
            "case": self.case.name,
            "pairs": [{"base": asdict(base), "case": asdict(case)} for base, case in self.pairs],
        }


def over_own_keys(limit: shmlimit.Limit, member: int) -> Maker:
    def make() -> Loop:
        allow = limit.allow
        keys = [f"198.51.{member}.{i}" for i in range(KEYS_EACH)]

        def loop(calls: int) -> None:
            for key in keys:  # as many as the chunk has calls
                allow(key)

        return loop

    assert KEYS_EACH == CHUNK_CALLS
    return make


def on_one_key(limit: shmlimit.Limit) -> Maker:
    def make() -> Loop:
        allow = limit.allow

        def loop(calls: int) -> None:
            for _ in repeat(None, calls):
                allow("203.0.113.7")

        return loop

    return make


def comparisons(limit: shmlimit.Limit, directory: str) -> list[Comparison]:
    own = [over_own_keys(limit, member) for member in range(2)]
    two_hot = Case("two, one hot key", [on_one_key(limit)] * 2)
    made = [
        Comparison(Case("one, its own keys", own[:1]), Case("two, keys of their own", own)),
        Comparison(Case("one, one hot key", [on_one_key(limit)]), two_hot),
    ]
    for name, lock in LOCKS.items():
        bucket = Bucket(mmap.mmap(-1, mmap.PAGESIZE), 16, 10**6 * TICKS_PER_S)
        maker = lock(bucket, f"{directory}/lock")
        made.append(Comparison(Case(f"two, {name}", [maker] * 2), two_hot))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.processes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few runs: proves nothing")
    parser.add_argument("--json", type=Path, help="where to write every run")
    arguments = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("two processes need two processors; this machine offers one")
    window_ns, rounds = (25_000_000, 3) if arguments.quick else (25_000_000, 60)
    with (
        tempfile.TemporaryDirectory() as directory,
        shmlimit.Limiter(f"bench-{os.getpid()}", keys=100_000, limit=RATE) as limiter,
    ):
        limiter["limit"].allow("203.0.113.7")
        compared = comparisons(limiter["limit"], directory)
        for _ in range(rounds):
            for comparison in compared:
                comparison.round(window_ns)
    show(compared, window_ns)
    report.write(arguments.json, {"processes": [c.as_json() for c in compared]})


def show(compared: list[Comparison], window_ns: int) -> None:
    print(f"million decisions a second, all processes together (median ±MAD); windows of "
          f"{window_ns / 1e6:.0f} ms")  # fmt: skip
    heads = f"{'case':21} {'base':26} {'pairs':>5} {'case':>13} {'base':>13} {'ratio':>13}"
    print(f"\nall pairs of runs\n{heads}")
    for comparison in compared:
        print(comparison.row(comparison.pairs))
    print(f"\npairs in which no process waited for a processor for {WAITED_MOST:.0%} of its window")
    print(heads)
    for comparison in compared:
        print(comparison.row(comparison.undisturbed()))


if __name__ == "__main__":
    main()
