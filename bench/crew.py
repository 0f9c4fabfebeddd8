"""A crew: forked processes that run one loop each over the same window of time."""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

LEAD_NS = 2_000_000  # from "all are ready" to the start: long enough for each to see it
START_OFFSET = 0  # bytes; the start in monotonic nanoseconds, 0 = not all are ready
LINE_BYTES = 64  # a member's result has a cache line of its own

# Called in the child: a loop that decides the given number of times when it is called.
Loop = Callable[[int], None]
Maker = Callable[[], Loop]


@dataclass(frozen=True)
class Window:
    """What a crew decided, all members together, and how far it had the machine to itself."""

    per_s: float  # decisions
    waited_share: float  # of the window, for a processor that others had; the worst member's


def decide(makers: Sequence[Maker], window_ns: int, chunk_calls: int) -> Window:
    """Runs one process for each maker and returns what they decided together.

    All start at the same moment. Each stops after the first chunk that ends past the window, and
    its decisions count over its time from the common start. Raises RuntimeError when one fails.
    """
    board = mmap.mmap(-1, LINE_BYTES * (1 + len(makers)))
    ready_in, ready_out = os.pipe()
    pids = []
    for member, maker in enumerate(makers):
        pid = os.fork()
        if pid == 0:
            os.close(ready_in)
            _work(board, LINE_BYTES * (1 + member), ready_out, maker, window_ns, chunk_calls)
        pids.append(pid)
    os.close(ready_out)
    ready = sum(len(os.read(ready_in, 1)) for _ in makers)  # a member that died reads as nothing
    struct.pack_into("Q", board, START_OFFSET, time.monotonic_ns() + LEAD_NS)
    statuses = [os.waitpid(pid, 0)[1] for pid in pids]
    os.close(ready_in)
    if ready != len(makers) or any(statuses):
        raise RuntimeError(f"members of the crew failed: wait statuses {statuses}")
    results = [
        struct.unpack_from("QQQ", board, LINE_BYTES * (1 + member)) for member in range(len(makers))
    ]
    board.close()
    return Window(
        per_s=sum(calls * 1e9 / took_ns for calls, took_ns, _ in results),
        waited_share=max(waited_ns / took_ns for _, took_ns, waited_ns in results),
    )


def _waited_ns() -> int:
    """How long this process was ready to run and had to wait for a processor, so far."""
    with open("/proc/self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1])


def _work(
    board: mmap.mmap, offset: int, ready: int, maker: Maker, window_ns: int, chunk_calls: int
) -> None:
    """The child's life. Never returns: what the parent registered for its exit is not ours."""
    status = 1
    try:
        loop = maker()
        loop(chunk_calls)  # warm
        os.write(ready, b".")
        waited_before_ns = _waited_ns()
        start_ns = 0
        while start_ns == 0 or time.monotonic_ns() < start_ns:
            (start_ns,) = struct.unpack_from("Q", board, START_OFFSET)
        calls, now_ns = 0, 0
        while now_ns < start_ns + window_ns:
            loop(chunk_calls)
            calls += chunk_calls
            now_ns = time.monotonic_ns()
        waited_ns = _waited_ns() - waited_before_ns
        struct.pack_into("QQQ", board, offset, calls, now_ns - start_ns, waited_ns)
        status = 0
    finally:
        os._exit(status)
