"""One server under load through everything at once: reloads, upgrades, kills and recycling."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from demo.clients import NO_ANSWER, NS_PER_S, Clients
from shmlimit import Limiter
from shmlimit.process import process_start_ticks
from tests.servers import HOOKS, config_file, running, wait_until, workers_of

SOAK = int(os.environ.get("SHMLIMIT_SOAK", "1"))  # how many times longer
UPGRADES = 1 + SOAK // 5
RELOADS, KILLS = 2 * SOAK, 4 * SOAK  # between two upgrades
RATE_PER_S, BURST = 150, 300
WORKERS = 3


class Masters:
    """The server's master, whichever process that is since the last upgrade."""

    def __init__(self, pid: int, pid_file: Path, log: Path) -> None:
        self.pid = pid
        self._pid_file = pid_file
        self._log = log

    def reload(self) -> None:
        lines = self._log.read_text().count("shmlimit: reloaded")
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self._log.read_text().count("shmlimit: reloaded") > lines)

    def kill_workers(self, kills: int) -> None:
        """One after the other."""
        for _ in range(kills):
            wait_until(lambda: len(workers_of(self.pid)) >= WORKERS)
            os.kill(max(workers_of(self.pid)), signal.SIGKILL)
            time.sleep(0.1)

    def upgrade(self) -> None:
        """A new master beside the old one, which then goes."""
        promotions = self._log.read_text().count("Master has been promoted")
        old, second = self.pid, self._pid_file.with_name(f"{self._pid_file.name}.2")
        os.kill(old, signal.SIGUSR2)
        wait_until(lambda: second.exists() and second.read_text().strip())
        self.pid = int(second.read_text())
        wait_until(lambda: len(workers_of(self.pid)) >= WORKERS)
        os.kill(old, signal.SIGTERM)
        wait_until(lambda: self._log.read_text().count("Master has been promoted") > promotions)
        wait_until(lambda: process_start_ticks(old) is None)

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def counted(limiter: Limiter) -> int:
    counters = limiter.counters()["per_ip"]
    return counters["allowed"] + counters["denied"]


def test_the_bound_holds_through_reloads_upgrades_kills_and_recycling(
    segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = config_file(tmp_path, segment_name, f"{RATE_PER_S}/s burst {BURST}", monkeypatch)
    pid_file = tmp_path / "pid"
    arguments = ("--workers", str(WORKERS), "--max-requests", "50", "--pid", str(pid_file))
    with running(file, *HOOKS, *arguments, upgradable=True) as server:
        master = Masters(server.process.pid, pid_file, server.log)
        try:
            with Limiter.from_config(file) as limiter:
                with Clients(server.port, 4 * RATE_PER_S) as clients:
                    for _ in range(UPGRADES):
                        master.reload()
                        before, files = counted(limiter), master.open_files()
                        for _ in range(RELOADS):
                            master.reload()
                            assert counted(limiter) >= before
                            before = counted(limiter)
                        # a worker that just starts may cost the master a file or two
                        assert master.open_files() <= files + 2 * WORKERS
                        master.kill_workers(KILLS)
                        master.upgrade()
                        assert counted(limiter) >= before
                        found = list(Path("/dev/shm").glob(f"shmlimit*.{segment_name}*"))
                        assert found == [limiter.path]
                admitted, lost = clients.count(200), clients.count(NO_ANSWER)
                bound = BURST + RATE_PER_S * clients.elapsed_ns() // NS_PER_S
                assert bound / 2 < admitted <= bound
                allowed = limiter.counters()["per_ip"]["allowed"] - 1  # the one before the load
                assert admitted <= allowed <= min(admitted + lost, bound)
                assert limiter.check().live == 1
        finally:
            os.kill(master.pid, signal.SIGTERM)
        wait_until(lambda: process_start_ticks(master.pid) is None)
    assert not limiter.path.exists()
