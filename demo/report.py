"""What a run of the demo shows, and whether the limit held."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from itertools import repeat

from demo.clients import NO_ANSWER, NS_PER_S, Clients
from shmlimit import Limiter, Rate

ADMITTED = 200
REFUSED = 429
LEAST_ADMITTED = 0.95  # of the bound: less would mean that the limit refuses what it owes
LOOPS = 7
CALLS = 20_000


@dataclass(frozen=True, slots=True)
class Run:
    limiter: Limiter
    rate: Rate
    clients: Clients
    killed_worker: int  # its pid
    killed_ns: int
    workers: int
    broken: bool  # the control: a limiter for each worker

    def bound(self, elapsed_ns: int) -> int:
        """The most that the limit admits in that time: its burst, and its rate since."""
        return self.rate.burst + self.rate.count * elapsed_ns // self.rate.period_ns

    def admitted_since(self, since_ns: int) -> int:
        answers = self.clients.answers
        return sum(answer.status == ADMITTED and answer.sent_ns >= since_ns for answer in answers)


def report(run: Run) -> int:
    """Prints it. The exit status: 0 when the limit held."""
    clients, rate = run.clients, run.rate
    elapsed_ns, after_ns = clients.elapsed_ns(), clients.elapsed_ns(run.killed_ns)
    admitted, bound = clients.count(ADMITTED), run.bound(elapsed_ns)
    after, bound_after = run.admitted_since(run.killed_ns), run.bound(after_ns)
    lost = clients.count(NO_ANSWER)

    _line("offered", len(clients.answers), f"requests in {elapsed_ns / NS_PER_S:.2f} s")
    _line("admitted", admitted, "answered by the application")
    _line("denied", clients.count(REFUSED), "answered with 429 and Retry-After")
    _line("unanswered", lost, f"were in worker {run.killed_worker} when it was killed (SIGKILL)")
    print()
    _line("bound", bound, f"burst {rate.burst} + {_times(rate, elapsed_ns)}")
    _line("after the kill", after, f"admitted; the bound is {bound_after}: "
          f"burst {rate.burst} + {_times(rate, after_ns)}")  # fmt: skip
    print()
    by_worker = _admitted_by_worker(run)
    told = "  ".join(f"{pid}: {count}" for pid, count in by_worker.items())
    _line("by worker", len(by_worker), f"pid: admitted  {told}  (one of them to see that it is up)")
    _line("a decision", _decision_ns(run.limiter), f"ns, median of {LOOPS} loops of {CALLS} hits "
          "on another key, here in one process")  # fmt: skip
    slots = run.limiter.check()
    _line("check()", slots.slots, f"slots walked, structure sound, {slots.live} live")
    print()
    fault = fault_of(admitted, bound, after, bound_after, run.workers - len(by_worker))
    if fault:
        print(f"BROKEN: {fault}")
        if run.broken:
            print("That is what limiters in each worker's own memory do, as --broken asked for.")
        return 1
    held = f"{admitted / bound:.1%} of it was admitted"
    print(f"The bound held, over {run.workers} workers and a kill: {held}.")
    return 0


def fault_of(
    admitted: int, bound: int, after: int, bound_after: int, silent_workers: int
) -> str | None:
    """What is wrong with a run; None when nothing is."""
    if admitted > bound:
        return f"{admitted / bound:.0%} of the bound was admitted."
    if after > bound_after:
        return f"after the kill, {after / bound_after:.0%} of the bound was admitted."
    if admitted < LEAST_ADMITTED * bound:
        return f"only {admitted / bound:.1%} of the bound was admitted, though all was asked for."
    if silent_workers > 0:
        return f"{silent_workers} workers admitted nothing, so it was no limit over all workers."
    return None


def _admitted_by_worker(run: Run) -> dict[int, int]:
    """By the table's counters. A new worker goes on counting in the row of the killed one; the
    master and this process have rows, too, and admit nothing."""
    rows = run.limiter.worker_counters()
    counts = {pid: sum(c["allowed"] for c in limits.values()) for pid, limits in rows.items()}
    return {pid: count for pid, count in counts.items() if count}


def _decision_ns(limiter: Limiter) -> int:
    """One hit, the loop around it included."""
    hit = limiter[next(iter(limiter))].hit
    loops_ns = []
    for _ in range(LOOPS):
        begun_ns = time.perf_counter_ns()
        for _ in repeat(None, CALLS):
            hit("another key")
        loops_ns.append(time.perf_counter_ns() - begun_ns)
    return round(statistics.median(loops_ns) / CALLS)


def _times(rate: Rate, elapsed_ns: int) -> str:
    per_s = rate.count * NS_PER_S / rate.period_ns
    return f"{per_s:g}/s * {elapsed_ns / NS_PER_S:.3f} s"


def _line(label: str, number: int, text: str) -> None:
    print(f"  {label:<15}{number:>7,}  {text}")
