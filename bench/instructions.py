"""How many instructions one call of `allow` and of `hit` takes: a figure without noise.

Callgrind counts only while a method's C wrapper runs, callees included, and while the Decision that
`hit` made is freed; the interpreter around it is not counted. Every call in the loop takes the same
path: a hot key, always admitted, its copies, its slot and its row of counters made beforehand, the
dynamic linker done (LD_BIND_NOW). So the sum is a multiple of the calls, and a run in which it is
not is refused. Under valgrind the clock is a system call instead of the vdso: its wrapper counts,
the kernel does not.

    python -m bench.instructions            counts, beside the record
    python -m bench.instructions --record   writes what it counted into the record

The record, tests/instructions/counts.json, is what tests/test_instructions.py holds the product to.
It has an entry for each Python, architecture and compiler, because each gives other instructions.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path

from bench import report
from shmlimit import _core
from shmlimit.rate import Rate

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "tests" / "instructions" / "counts.json"
METHODS = ("allow", "hit")
CALLS = 1000
REST_MOST = 50  # instructions beside the calls: one Decision that was made beforehand is freed
HOT_KEY = "203.0.113.7"
RATE = Rate.parse("1/s burst 1000000")  # in debt for longer than the loop takes: one path
# A count is exact for one build. Within one entry of the record, patch releases of Python, glibc
# and the compiler differ by a few instructions, which is below this; a check or a copy more on the
# path is above it.
SLACK_PERCENT = 2

Counts = dict[str, int]


def environment() -> str:
    """The record's key: what decides which instructions there are."""
    return f"{report.python()} {platform.machine()} {report.compiler()}"


def read_record() -> dict[str, Counts]:
    if not RECORD.exists():
        return {}
    record: dict[str, Counts] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def write_record(counts: Counts) -> None:
    record = read_record() | {environment(): counts}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def regressions(counted: Counts, recorded: Counts) -> list[str]:
    """What is above its record by more than the slack, in words; empty when all is well."""
    return [
        f"{method}: {counted[method]} instructions a call, recorded are {most}: look for what was "
        f"added to the path, or accept it with `python -m bench.instructions --record`"
        for method, most in recorded.items()
        if counted[method] * 100 > most * (100 + SLACK_PERCENT)
    ]


def count(method: str) -> int:
    """Instructions a call of that method. Raises RuntimeError when they cannot be counted."""
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        command = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={out}",
            "--collect-atstart=no",
            f"--toggle-collect=__pyx_pw_*5Limit_*{method}",
            "--toggle-collect=__pyx_tp_dealloc_*_core_Decision",
            sys.executable,
            *("-m", "bench.instructions", "--loop", method),
        ]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": "0", "LD_BIND_NOW": "1"},
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        found = re.search(r"^summary: (\d+)$", out.read_text(encoding="utf-8"), re.MULTILINE)
    total = int(found[1]) if found else 0
    if total == 0:
        raise RuntimeError(
            f"callgrind counted nothing in {method}: the extension has lost its symbols; "
            f"build it without stripping"
        )
    a_call, rest = divmod(total, CALLS)
    if rest > REST_MOST:
        raise RuntimeError(f"{method}: {total} instructions in {CALLS} calls: not all are alike")
    return a_call


def count_all() -> Counts:
    """Both at the same time: what runs beside a count does not change it."""
    with ThreadPoolExecutor(len(METHODS)) as pool:
        return dict(zip(METHODS, pool.map(count, METHODS), strict=True))


def loop(method: str) -> None:
    """What runs under callgrind: the calls to count, and nothing else that it would count."""
    call = getattr(_hot_limit(), method)
    for _ in repeat(None, CALLS):
        call(HOT_KEY)


def _hot_limit() -> _core.Limit:
    """A limit in private memory, its key's bucket made by a method that is not counted."""
    lines = _core.lines_for(1000)
    size_bytes = _core.segment_bytes(lines, worker_rows=1)
    header = _core.Header(
        lines=lines,
        worker_rows=1,
        segment_bytes=size_bytes,
        epoch_ns=_core.monotonic_ns() - 10**9,
        wall_offset_ns=0,
        clock_id=1,
        boot_id=bytes(16),
        time_ns_inode=0,
        name="instructions",
        pid_ns_inode=1,  # with the table's below: a row of counters of its own, as workers have
    )
    memory = mmap.mmap(-1, size_bytes)
    _core.format_segment(memory, header, secret=bytes(range(16)))
    table = _core.Table(memory, "instructions", nullcontext, pid_ns_inode=1)
    table.publish("hot", [RATE])
    limit = table.limit("hot")
    limit.hit_many([HOT_KEY])  # its Decision, freed at once, is the one that each hit uses again
    return limit


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument("--record", action="store_true", help="rewrite this environment's record")
    parser.add_argument("--loop", choices=METHODS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loop:
        loop(arguments.loop)
        return
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed: install your distribution's package `valgrind`")
    counts = count_all()
    recorded = read_record().get(environment(), {})
    print(f"instructions a call, {environment()}")
    for method, counted in counts.items():
        print(f"{method:6} {counted:5}   recorded {recorded.get(method, 'nothing')}")
    if arguments.record:
        write_record(counts)
        print(f"recorded in {RECORD.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
