"""One server under load through everything at once: reloads, upgrades, kills and recycling.

A request counts as admitted when its 200 arrived. One whose connection ended without an answer was
in the hands of a worker that was killed, and may have been admitted: that is the slack in flight,
and a worker of this kind has one request at a time in its hands.
"""

from __future__ import annotations

import os
import random
import re
import signal
from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from demo.clients import NO_ANSWER, NS_PER_S, Answer, Clients
from shmlimit import Limiter
from shmlimit.process import process_start_ticks
from tests.servers import HOOKS, config_file, running, wait_until, workers_of

SOAK = int(os.environ.get("SHMLIMIT_SOAK", "1"))  # how many times longer
RELOADS, KILLS, RECYCLED = 2 * SOAK, 10 * SOAK, 100 * SOAK
UPGRADES = max(1, 3 * SOAK // 10)
RATE_PER_S, BURST = 30, 60  # less than so troubled a server answers on a busy machine
OFFERED_PER_S = 400
WORKERS = 3
REQUESTS_MAX = 10  # of a worker, which then makes room for a new one
WINDOWS_S = (0.1, 1, 5, 20)  # and the whole run


class Master:
    """The server's master, whichever process that is since the last upgrade."""

    def __init__(self, pid: int, pid_file: Path, log: Path) -> None:
        self.pid = pid
        self._pid_file = pid_file
        self._log = log
        self._draw = random.Random(11)
        self._files_at_first = self._open_files()

    def logged(self, line: str) -> int:
        return self._log.read_text().count(line)

    def recycled(self) -> set[int]:
        """The pids of workers that have had their last request."""
        lines = re.findall(r"\[(\d+)\] \[INFO\] Autorestarting worker", self._log.read_text())
        return set(map(int, lines))

    def has_recycled(self, workers: int) -> bool:
        return len(self.recycled()) >= workers

    def killed(self) -> int:
        return self.logged("was sent SIGKILL")

    def reload(self) -> None:
        lines = self.logged("shmlimit: reloaded")
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.logged("shmlimit: reloaded") > lines)

    def kill_a_worker(self) -> None:
        """One that the master then finds killed: another may have been about to end anyway."""
        killed = self.killed()
        while self.killed() == killed:
            wait_until(lambda: len(workers_of(self.pid)) >= WORKERS)
            victim = self._draw.choice(sorted(workers_of(self.pid)))
            os.kill(victim, signal.SIGKILL)
            wait_until(partial(gone, victim))

    def upgrade(self) -> None:
        """A new master beside the old one, which then goes."""
        promotions = self.logged("Master has been promoted")
        old, second = self.pid, self._pid_file.with_name(f"{self._pid_file.name}.2")
        os.kill(old, signal.SIGUSR2)
        wait_until(lambda: second.exists() and second.read_text().strip())
        self.pid = int(second.read_text())
        wait_until(lambda: len(workers_of(self.pid)) >= WORKERS)
        os.kill(old, signal.SIGTERM)
        wait_until(lambda: self.logged("Master has been promoted") > promotions)
        wait_until(lambda: process_start_ticks(old) is None)
        self._files_at_first = self._open_files()

    def assert_no_more_open_files(self) -> None:
        """Than it had at first; one more it may have while it publishes."""
        wait_until(lambda: self._open_files() <= self._files_at_first)

    def _open_files(self) -> int:
        """Without one for each worker, which come and go, and gunicorn's sockets."""
        files = 0
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                path = os.readlink(descriptor)
                files += path.startswith("/") and "/wgunicorn-" not in path
        return files


def gone(pid: int) -> bool:
    """Also no zombie: its master has seen the end."""
    return not Path(f"/proc/{pid}").exists()


class Counters:
    """What the table counts, looked at again and again: no number ever falls."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._seen: dict[str, int] = {}

    def look(self) -> None:
        now = self._limiter.counters()["per_ip"]
        assert now.keys() >= self._seen.keys()
        fallen = {name: (seen, now[name]) for name, seen in self._seen.items() if now[name] < seen}
        assert not fallen
        self._seen = now


def trouble(master: Master, limiter: Limiter) -> None:
    """All of it, spread evenly over the kills."""
    upgrades, counters = 0, Counters(limiter)
    for kill in range(1, KILLS + 1):
        master.kill_a_worker()
        # workers go on being recycled meanwhile, so many for each kill
        wait_until(partial(master.has_recycled, RECYCLED * kill // KILLS))
        if kill * RELOADS // KILLS > (kill - 1) * RELOADS // KILLS:
            master.reload()
        counters.look()
        if kill * UPGRADES // KILLS > upgrades:
            master.assert_no_more_open_files()
            master.upgrade()
            upgrades += 1
            counters.look()
        assert list(Path("/dev/shm").glob(f"shmlimit*.{limiter.name}*")) == [limiter.path]


def assert_no_window_admits_too_much(answers: list[Answer]) -> None:
    """A request that lies in a window whole, up to its answer, was decided in it."""
    admitted = sorted((a for a in answers if a.status == 200), key=lambda a: a.sent_ns)
    sent_ns = [answer.sent_ns for answer in admitted]
    for start_ns in sent_ns[::10]:
        first = bisect_left(sent_ns, start_ns)
        for length_s in WINDOWS_S:
            end_ns = start_ns + int(length_s * NS_PER_S)
            inside = admitted[first : bisect_right(sent_ns, end_ns)]
            cells = sum(answer.answered_ns <= end_ns for answer in inside)
            assert cells <= BURST + RATE_PER_S * length_s


def test_the_bound_holds_through_reloads_upgrades_kills_and_recycling(
    segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = config_file(tmp_path, segment_name, f"{RATE_PER_S}/s burst {BURST}", monkeypatch)
    pid_file = tmp_path / "pid"
    workers = ("--workers", str(WORKERS), "--max-requests", str(REQUESTS_MAX))
    with running(file, *HOOKS, *workers, "--pid", str(pid_file), upgradable=True) as server:
        master = Master(server.process.pid, pid_file, server.log)
        try:
            with Limiter.from_config(file) as limiter:
                with Clients(server.port, OFFERED_PER_S) as clients:
                    trouble(master, limiter)
                admitted, refused, lost = map(clients.count, (200, 429, NO_ANSWER))
                assert admitted + refused + lost == len(clients.answers)
                print(
                    f"{clients.elapsed_ns() / NS_PER_S:.1f} s: {admitted} admitted, {refused} "
                    f"refused, {lost} without an answer; {master.killed()} kills, "
                    f"{len(master.recycled())} recycled"
                )
                bound = BURST + RATE_PER_S * clients.elapsed_ns() // NS_PER_S
                assert admitted <= bound
                assert refused, "the limit was never met: this run proves nothing"
                assert_no_window_admits_too_much(clients.answers)
                assert lost <= master.killed(), "a killed worker had one request in hand"
                allowed = limiter.counters()["per_ip"]["allowed"] - 1  # the one before the load
                assert admitted <= allowed <= min(admitted + lost, bound)
                assert limiter.check().live == 1
                assert len(limiter.worker_counters()) <= 1 + 4 * WORKERS, "rows are used again"
        finally:
            os.kill(master.pid, signal.SIGTERM)
        wait_until(lambda: process_start_ticks(master.pid) is None)
        assert master.logged("shmlimit: reloaded") == RELOADS
        assert master.logged("Master has been promoted") == UPGRADES
        assert master.killed() >= KILLS
        assert len(master.recycled()) >= RECYCLED
        assert master.logged("Traceback") == 0
    assert not limiter.path.exists()
