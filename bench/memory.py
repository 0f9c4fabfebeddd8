"""What a key costs in memory, and that a worker's memory does not grow with the keys it has seen.

Bytes a key: the whole segment (header, limit rows, counters, slots) over the keys it was made for,
and over the keys that are live in it once that many were put in.

Growth: a forked worker decides on ten million distinct keys, in a small table whose buckets die
quickly, so that every decision reclaims a slot. Its own memory (RssAnon) is read from
/proc/self/status on the way; the segment's pages are shared memory (RssShmem), bounded by its size.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import shmlimit
from bench import report

MIB = 2**20
FREE_MIB_FOR_10M = 512  # of /dev/shm
FILL_RATE = "1/h"  # a bucket that was used once stays live for an hour
FILL_BATCH = 1000
GROWTH_KEYS = 4096  # the small table
GROWTH_RATE = "1000000/s burst 1"  # a bucket is dead a microsecond after its use


@dataclass(frozen=True)
class Fill:
    """A table after as many distinct keys as it was made for."""

    keys: int
    segment_bytes: int
    live_keys: int
    turned_away: int  # keys whose candidates were all live: refused, or put in place of another

    def shown(self) -> str:
        return (
            f"{self.keys:>10} {self.segment_bytes / MIB:>9.1f} MiB "
            f"{self.segment_bytes / self.keys:>12.2f} {self.live_keys:>12} "
            f"{self.segment_bytes / self.live_keys:>12.2f} {self.turned_away:>12}"
        )


@dataclass(frozen=True)
class Reading:
    """A process's memory after so many decisions, in KiB."""

    decisions: int
    anon_kib: int
    shmem_kib: int


def fill(keys: int) -> Fill:
    with shmlimit.Limiter(f"bench-{os.getpid()}", keys=keys, fill=FILL_RATE) as limiter:
        limit = limiter["fill"]
        for first in range(0, keys, FILL_BATCH):
            limit.hit_many([f"198.51.{i}" for i in range(first, min(first + FILL_BATCH, keys))])
        live = limiter.check().live
        counters = limiter.counters()["fill"]
        turned_away = counters["evicted"] + counters["full_denied"]
        return Fill(keys, limiter.size_bytes, live, turned_away)


def read_memory(decisions: int) -> Reading:
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    kib = {name: int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")}
    return Reading(decisions, kib["RssAnon"], kib["RssShmem"])


def worker_readings(limit: shmlimit.Limit, decisions: int, every: int) -> Iterator[Reading]:
    """Alternates hit and allow, each on a key that was never used before."""
    for first in range(0, decisions, every):
        for i in range(first, first + every, 2):
            limit.hit(f"198.51.{i}")
            limit.allow(f"198.51.{i + 1}")
        yield read_memory(first + every)


def growth(decisions: int) -> tuple[int, list[Reading]]:
    """The segment's size in bytes, and the readings of a worker forked for this."""
    with shmlimit.Limiter(f"bench-{os.getpid()}", keys=GROWTH_KEYS, growth=GROWTH_RATE) as limiter:
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                readings = worker_readings(limiter["growth"], decisions, decisions // 10)
                os.write(into, json.dumps([asdict(reading) for reading in readings]).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(into)
        with open(out, encoding="ascii") as file:
            text = file.read()
        if os.waitpid(pid, 0)[1] != 0:
            raise RuntimeError("the worker failed")
        counters = limiter.counters()["growth"]
        decided = counters["allowed"] + counters["denied"]
        if decided != decisions:
            raise RuntimeError(f"the worker decided {decided} times, not {decisions}")
        return limiter.size_bytes, [Reading(**reading) for reading in json.loads(text)]


def free_mib() -> float:
    space = os.statvfs("/dev/shm")
    return space.f_bavail * space.f_frsize / MIB


def show_fills(sizes: list[int]) -> list[Fill]:
    print("bytes a key, of the whole segment")
    print(f"{'keys':>10} {'segment':>13} {'a key':>12} {'live keys':>12} {'a live key':>12} "
          f"{'turned away':>12}")  # fmt: skip
    fills = []
    for keys in sizes:
        if keys >= 10**7 and free_mib() < FREE_MIB_FOR_10M:
            print(f"{keys:>10} left out: needs {FREE_MIB_FOR_10M} MiB of /dev/shm, "
                  f"{free_mib():.0f} are free")  # fmt: skip
            continue
        fills.append(fill(keys))
        print(fills[-1].shown())
    return fills


def show_growth(decisions: int) -> dict[str, Any]:
    segment_bytes, readings = growth(decisions)
    print(f"\na worker's memory over {decisions} decisions on as many keys, KiB")
    print(
        f"{'decisions':>10} {'RssAnon':>10} {'RssShmem':>10}   (segment: {segment_bytes // 1024})"
    )
    for reading in readings:
        print(f"{reading.decisions:>10} {reading.anon_kib:>10} {reading.shmem_kib:>10}")
    anon = [reading.anon_kib for reading in readings]
    print(f"RssAnon from the first reading to the last: {anon[-1] - anon[0]:+} KiB, "
          f"span {max(anon) - min(anon)} KiB")  # fmt: skip
    return {"segment_bytes": segment_bytes, "readings": [asdict(reading) for reading in readings]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer keys: proves less")
    parser.add_argument("--json", type=Path, help="where to write every reading")
    arguments = parser.parse_args()
    sizes, decisions = ([10**5], 10**6) if arguments.quick else ([10**6, 10**7], 10**7)
    fills = show_fills(sizes)
    grown = show_growth(decisions)
    results = {"fills": [asdict(each) for each in fills], "growth": grown}
    report.write(arguments.json, {"memory": results})


if __name__ == "__main__":
    main()
