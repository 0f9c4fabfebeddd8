"""A program that is one host: a table of its own with its agent, and requests at a steady pace.

    python -m tests.offering CONFIG OUT RATE HOSTS

It says "ready" when HOSTS is the count in force, begins at a line on its standard input, and ends
with that input. For each admission OUT gets a line: the clock before and after it in ns, and the
count of hosts in force.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from shmlimit import Limiter, start_agent
from tests.agents import beats
from tests.servers import wait_until

TURN_S = 0.001


def offer(limiter: Limiter, out: int, rate: int, over: threading.Event) -> None:
    """What a stall of the machine has held up is offered after it."""
    limit, begin_ns, offered = limiter["all"], time.monotonic_ns(), 0
    while not over.is_set():
        due = (time.monotonic_ns() - begin_ns) * rate // 1_000_000_000
        admitted = []
        for _ in range(due - offered):
            before_ns = time.monotonic_ns()
            if limit.hit("x"):
                admitted.append((before_ns, time.monotonic_ns()))
        offered = max(due, offered)
        if admitted:
            hosts = limiter.hosts.in_force
            os.write(out, "".join(f"{b} {a} {hosts}\n" for b, a in admitted).encode())
        time.sleep(TURN_S)


def main(config: str, out: str, rate: str, hosts: str) -> None:
    with Limiter.from_config(Path(config)) as limiter:
        start_agent(limiter)
        wait_until(lambda: beats(limiter) and limiter.hosts.in_force == int(hosts))
        print("ready", flush=True)
        over = threading.Event()
        sys.stdin.readline()
        file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        offering = threading.Thread(target=offer, args=(limiter, file, int(rate), over))
        offering.start()
        sys.stdin.read()
        over.set()
        offering.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
