"""Clients that ask a server more often than it allows, and count what they are answered."""

from __future__ import annotations

import re
import socket
import threading
import time
from dataclasses import dataclass
from typing import Self

REQUEST = "GET {path} HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n"
NO_ANSWER = 0
NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    status: int  # NO_ANSWER when the connection ended without one: its worker was killed
    sent_ns: int
    answered_ns: int
    worker: int = 0  # the pid that the application answered with


def ask(port: int, path: str = "/") -> Answer:
    """One request over a connection of its own."""
    sent_ns = time.monotonic_ns()
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(REQUEST.format(path=path).encode())
            while received := connection.recv(4096):
                answer += received
    except ConnectionError:
        pass
    status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else NO_ANSWER
    worker = re.search(rb"worker (\d+)\n$", answer)
    return Answer(status, sent_ns, time.monotonic_ns(), int(worker[1]) if worker else 0)


class Clients:
    """Threads that together send so many requests a second, for as long as a `with` block runs.

    `answers` is complete when the block has ended.
    """

    def __init__(self, port: int, requests_per_s: int, threads: int = 8) -> None:
        self.answers: list[Answer] = []
        self._port = port
        self._interval_ns = threads * NS_PER_S // requests_per_s
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number / threads,), daemon=True)
            for number in range(threads)
        ]

    def _run(self, phase: float) -> None:
        next_ns = time.monotonic_ns() + int(phase * self._interval_ns)
        while not self._stopped.wait(max(next_ns - time.monotonic_ns(), 0) / NS_PER_S):
            self.answers.append(ask(self._port))
            next_ns += self._interval_ns

    def count(self, status: int) -> int:
        return sum(answer.status == status for answer in self.answers)

    def elapsed_ns(self, since_ns: int = 0) -> int:
        """From the first request sent, of those since then, to the last answer."""
        first_ns = min(answer.sent_ns for answer in self.answers if answer.sent_ns >= since_ns)
        return max(answer.answered_ns for answer in self.answers) - first_ns

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
