"""What a worker pays for its first touches of the table's pages, and whether to map them ahead.

The master reserves the table's memory when it makes it. But each process has page tables of its
own, and a fork does not copy those of a shared mapping: a worker's first look into a page is a
page fault. In a table in use the kernel maps the neighbours along with it, up to 16 pages that lie
side by side. In a new one nobody has looked yet: each page is cleared first, and mapped alone.

Question: is a worker better off when all is mapped before its first request? Three ways:

- nothing: pages are mapped as they are met, as shmlimit does it
- parent: the master maps all before it forks (madvise MADV_POPULATE_READ, which is what mmap's
  MAP_POPULATE does for a shared mapping)
- worker: each worker maps all when it starts (madvise MADV_POPULATE_WRITE)

Method: for each run a fresh process is forked, maps if it is to, and hits distinct keys that lie
anywhere in the table, each hit timed by itself; once on a table just made, once on one whose pages
have all been used. Runs go nothing, case, case, nothing, again and again. Page faults are the
process's own (ru_minflt), page tables VmPTE of /proc/self/status. Touching: a fresh mapping of the
used table, one byte read in every page; the same once more is the loop alone. A forked process
also copies pages of its own when it first uses objects and code: so the same keys are hit in a
small table before, and one in the table itself, which takes its row of counters.

Distortion: the clock's reading around each hit, about 0.1 us, is in its time. Keys come as fast as
they can, so the faults that a server spreads over its first seconds stand close together. The
worker is alone; several that start at once meet at the page cache.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import mmap
import os
import random
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import shmlimit
from bench import report
from bench.sample import Sample

MADV_POPULATE_READ, MADV_POPULATE_WRITE = 22, 23  # Linux 5.14
RATE = "1000000/s burst 1"  # a bucket is dead a microsecond after its use
WARM_KEYS = 1000  # of the small table
FIRST_HITS, HITS = 1000, 20_000
MIB = 2**20
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Start:
    """What one worker paid. Hits are its first thousand, `hits_ms` the first twenty thousand."""

    populate_ms: float  # in the worker, or in its parent
    hit_median_us: float
    hit_p99_us: float
    hit_worst_us: float
    hits_ms: float
    faults: float  # while it mapped and hit
    page_tables_kib: float  # more than at its start
    mapped_mib: float  # of the segment


def populate(path: Path, advice: int) -> None:
    """Maps all pages of this process's mapping of that file."""
    inode = str(path.stat().st_ino)  # the mapping's name is the one that the file was made under
    for line in Path("/proc/self/maps").read_text().splitlines():
        extent, _, _, _, its_inode, *name = line.split()
        if its_inode == inode and name[0].startswith(str(path.parent)):
            first, end = (int(part, 16) for part in extent.split("-"))
            if _libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), advice):
                raise OSError(ctypes.get_errno(), "madvise: populating needs Linux 5.14")
            return
    raise LookupError(f"{path} is not mapped")


def status_kib(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def hit_each(hit: Callable[[str], object], keys: list[str]) -> list[int]:
    """How long each took, in ns."""
    now_ns = time.perf_counter_ns
    taken_ns = [1 << 40] * len(keys)
    for i, key in enumerate(keys):
        before_ns = now_ns()
        hit(key)
        taken_ns[i] = now_ns() - before_ns
    return taken_ns


def start(warm: shmlimit.Limiter, limiter: shmlimit.Limiter, advice: int | None) -> Start:
    """A worker's first work; called in a process that was forked for it."""
    keys = [f"198.51.{i}" for i in range(HITS)]
    now_ns = time.perf_counter_ns
    for hit in (warm["populate"].hit, limiter["populate"].hit):
        hit("first")
    hit_each(warm["populate"].hit, keys)
    hit = limiter["populate"].hit
    page_tables_kib, faults_before, began_ns = status_kib("VmPTE"), faults(), now_ns()
    if advice is not None:
        populate(limiter.path, advice)
    mapped_ns = now_ns()
    taken_ns = hit_each(hit, keys)
    all_ns, faults_after = now_ns() - mapped_ns, faults()
    first_us = [ns / 1000 for ns in taken_ns[:FIRST_HITS]]
    return Start(
        (mapped_ns - began_ns) / 1e6,
        median(first_us),
        quantiles(first_us, n=100)[-1],
        max(first_us),
        all_ns / 1e6,
        faults_after - faults_before,
        status_kib("VmPTE") - page_tables_kib,
        status_kib("RssShmem") / 1024,
    )


def touch(path: Path) -> dict[str, float]:
    """Nanoseconds a page of first touches in a fresh mapping, in order and in any order."""
    pages = os.stat(path).st_size // mmap.PAGESIZE
    orders = {"in order": list(range(pages)), "in any order": list(range(pages))}
    random.Random(1).shuffle(orders["in any order"])
    told = {}
    for order, numbers in orders.items():
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            took_ns = []
            for _ in range(2):  # the second time without faults
                before_ns = time.perf_counter_ns()
                for number in numbers:
                    memory[number * mmap.PAGESIZE]
                took_ns.append(time.perf_counter_ns() - before_ns)
            told[order] = (took_ns[0] - took_ns[1]) / pages
    return told


def in_child(work: Callable[[], dict[str, float]]) -> dict[str, float]:
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.write(into, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(into)
    with open(out, encoding="ascii") as file:
        text = file.read()
    if os.waitpid(pid, 0)[1] != 0:
        raise RuntimeError("the worker failed")
    told: dict[str, float] = json.loads(text)
    return told


Runs = dict[str, list[dict[str, float]]]


def opened(name: str, keys: int) -> shmlimit.Limiter:
    return shmlimit.Limiter(f"bench-{os.getpid()}-{name}", keys=keys, populate=RATE)


def mapped_by_this(limiter: shmlimit.Limiter) -> float:
    """Maps all here, and returns how many ms that took."""
    before_ns = time.perf_counter_ns()
    populate(limiter.path, MADV_POPULATE_READ)
    return (time.perf_counter_ns() - before_ns) / 1e6


def worker_of(
    case: str, warm: shmlimit.Limiter, limiter: shmlimit.Limiter, parent_ms: float = 0.0
) -> dict[str, float]:
    advice = MADV_POPULATE_WRITE if case == "worker" else None
    told = in_child(lambda: asdict(start(warm, limiter, advice)))
    told["populate_ms"] += parent_ms
    return told


def on_new_table(case: str, keys: int, warm: shmlimit.Limiter) -> dict[str, float]:
    with opened("new", keys) as limiter:
        parent_ms = mapped_by_this(limiter) if case == "parent" else 0.0
        return worker_of(case, warm, limiter, parent_ms)


def in_turn(rounds: int, run: Callable[[str], dict[str, float]]) -> Runs:
    runs: Runs = {"nothing": [], "parent": [], "worker": []}
    for _ in range(rounds):
        for case in ("parent", "worker"):
            for each in ("nothing", case, case, "nothing"):
                runs[each].append(run(each))
    return runs


def starts(keys: int, rounds: int) -> tuple[int, dict[str, Runs]]:
    """The segment's size in bytes, and all runs: on new tables, on one in use, and of touching."""
    with (
        opened("warm", WARM_KEYS) as warm,
        opened("used", keys) as used,
        opened("used-mapped", keys) as used_mapped,
    ):
        worker_of("worker", warm, used)
        mapped_by_this(used_mapped)  # once: in its time it is a new one

        def on_used_table(case: str) -> dict[str, float]:
            return worker_of(case, warm, used_mapped if case == "parent" else used)

        return used.size_bytes, {
            "new": in_turn(rounds, lambda case: on_new_table(case, keys, warm)),
            "used": in_turn(rounds, on_used_table),
            "touch": {"touch": [in_child(lambda: touch(used.path)) for _ in range(rounds)]},
        }


def show(keys: int, segment_bytes: int, told: dict[str, Runs]) -> None:
    print(f"\n{keys} keys, {segment_bytes / MIB:.1f} MiB, {segment_bytes // mmap.PAGESIZE} pages")
    touched = told["touch"]["touch"]
    orders = {order: Sample([run[order] for run in touched]) for order in touched[0]}
    print("first touch of a page in use, ns: ", end="")
    print(", ".join(f"{sample.shown(0)} {order}" for order, sample in orders.items()))
    names = list(told["new"]["nothing"][0])
    print(f"{'table, mapped by':<18}" + "".join(f"{name:>16}" for name in names))
    for table in ("new", "used"):
        for case, runs in told[table].items():
            samples = [Sample([run[name] for run in runs]) for name in names]
            print(f"{table + ', ' + case:<18}" + "".join(f"{s.shown(2):>16}" for s in samples))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.populate", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs: proves less")
    parser.add_argument("--json", type=Path, help="where to write every run")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for keys in [10**5, 10**6] if arguments.quick else [10**5, 10**6, 10**7]:
        segment_bytes, told = starts(keys, rounds=2 if arguments.quick else 15)
        show(keys, segment_bytes, told)
        results[str(keys)] = {"segment_bytes": segment_bytes, **told}
    report.write(arguments.json, {"populate": results})


if __name__ == "__main__":
    main()
