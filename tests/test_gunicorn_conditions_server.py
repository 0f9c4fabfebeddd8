"""Real gunicorn servers in odd surroundings: what is missing, read-only, lost or beside them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import gunicorn
import pytest

from demo.clients import ask
from demo.server import Server
from shmlimit import Limiter
from tests.servers import (
    HOOKS,
    PATIENCE_S,
    config_file,
    reload,
    running,
    statuses,
    wait_until,
    workers_of,
)

NEW = pytest.mark.skipif(gunicorn.version_info < (25, 1), reason="this gunicorn has none of it")
READ_ONLY = ("unshare", "-m", "sh", "-c", 'mount -o remount,bind,ro / && exec "$0" "$@"')


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return config_file(tmp_path, segment_name, "20/d", monkeypatch)


def test_a_name_that_is_lost_under_the_server_costs_no_worker_its_table(
    file: Path, segment: Path
) -> None:
    with running(file, *HOOKS, "--workers", "1") as server:
        segment.unlink()
        (worker,) = workers_of(server.process.pid)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: workers_of(server.process.pid) - {worker})
        assert statuses(server.port, 20) == [200] * 19 + [429]
        assert not segment.exists(), "no second table beside the workers'"
        reload(server.process.pid, server.log, 1)
        told = [line for line in server.log.read_text().splitlines() if "lost its name" in line]
        by_master = [line for line in told if f"[{server.process.pid}]" in line]
        assert len(by_master) == 1
        assert all("restart the server" in line for line in told)
        assert len(told) <= 2, "the agent may have seen it too, and told once"
        assert ask(server.port).status == 429
        assert server.stop() == 0


def test_workers_that_cannot_attach_let_pass_and_say_so(file: Path, segment: Path) -> None:
    """Without the hooks each opens the table itself, and something else bears its name."""
    segment.write_bytes(b"not a segment" * 1000)
    segment.chmod(0o600)
    with running(file, "--workers", "2") as server:
        assert statuses(server.port, 40) == [200] * 40
        log = server.log.read_text()
        assert 1 <= log.count("requests pass unlimited: WrongMagic") <= 2, "once a worker"
        assert "remove /dev/shm/" in log
        assert server.stop() == 0
    segment.unlink()


def test_a_read_only_root_and_no_home_are_enough(file: Path, segment: Path) -> None:
    done = subprocess.run([*READ_ONLY, "true"], capture_output=True)
    if done.returncode:
        pytest.skip("no mount namespace can be made here (unshare and mount are not allowed)")
    arguments = (*HOOKS, "--workers", "2", "--worker-tmp-dir", "/dev/shm", "demo.app:app")
    environment = {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    with Server(file.parent, *arguments, environment=environment, before=READ_ONLY) as server:
        assert statuses(server.port, 21) == [200] * 20 + [429]
        assert server.stop() == 0
        assert f"shmlimit: {segment}" in server.log.read_text()
    assert not segment.exists()


@NEW
def test_the_master_has_one_thread_when_gunicorn_has_no_control_socket(file: Path) -> None:
    with running(file, *HOOKS, "--workers", "1", "--no-control-socket") as server:
        assert len(os.listdir(f"/proc/{server.process.pid}/task")) == 1


@NEW
def test_the_control_sockets_thread_forks_with_no_harm(file: Path, segment: Path) -> None:
    with running(file, *HOOKS, "--workers", "2") as server:
        wait_until(lambda: len(os.listdir(f"/proc/{server.process.pid}/task")) == 2)
        for _ in range(5):
            os.kill(max(workers_of(server.process.pid)), signal.SIGKILL)
            wait_until(lambda: len(workers_of(server.process.pid)) == 2)
        assert statuses(server.port, 20) == [200] * 19 + [429]
        assert server.stop() == 0
    assert not segment.exists()


def test_python_has_nothing_to_warn_of(file: Path) -> None:
    """Since 3.12 it warns of forks of processes with several threads."""
    if sys.version_info < (3, 12):
        pytest.skip("Python warns of it since 3.12")
    flags = {"PYTHONWARNINGS": "error::DeprecationWarning"}
    socket = () if gunicorn.version_info < (25, 1) else ("--no-control-socket",)
    arguments = (*HOOKS, "--workers", "2", *socket, "demo.app:app")
    with Server(file.parent, *arguments, environment=flags) as server:
        assert statuses(server.port, 21) == [200] * 20 + [429]
        assert "Warning" not in server.log.read_text()


DIRTY = """
from gunicorn.dirty.app import DirtyApp
from shmlimit import Limiter

class Limited(DirtyApp):
    def init(self):
        self.limit = Limiter.from_config()["per_ip"]
    def take(self, cells):
        return sum(self.limit.allow("ip:127.0.0.1") for _ in range(cells))
"""
ASKING = """
from gunicorn.dirty import get_dirty_client
from demo.app import app as limited

def app(environ, start_response):
    if environ["PATH_INFO"] == "/dirty":
        taken = get_dirty_client().execute("dirty_limited:Limited", "take", 5)
        start_response("200 OK" if taken == 5 else "500 Fewer", [])
        return []
    return limited(environ, start_response)
"""


@pytest.mark.skipif(gunicorn.version_info < (25, 1), reason="this gunicorn has no dirty workers")
def test_dirty_workers_share_the_table(file: Path, segment: Path) -> None:
    file.with_name("dirty_limited.py").write_text(DIRTY)
    file.with_name("asking.py").write_text(ASKING)
    dirty = ("--dirty-app", "dirty_limited:Limited", "--dirty-workers", "2")
    with running(file, *HOOKS, "--workers", "1", *dirty, app="asking:app") as server:
        wait_until(lambda: "worker-2.sock" in server.log.read_text())
        assert [ask(server.port, "/dirty").status for _ in range(2)] == [200, 200]
        with Limiter.from_config(file) as limiter:
            assert limiter.counters()["per_ip"]["allowed"] == 1 + 2 * 5
        assert statuses(server.port, 10) == [200] * 9 + [429]
        assert server.stop() == 0
        assert "shmlimit: its hook" not in server.log.read_text()
    assert not segment.exists()


GEVENT = """
import sys, time as before
import shmlimit                                      # harmless before the patch
from gevent import monkey; monkey.patch_all()
import gevent, time

with shmlimit.Limiter(sys.argv[1], keys=100, a="100/s burst 1") as limiter:
    ticks, order = 0, []
    def tick():
        global ticks
        while len(order) < 50:
            gevent.sleep(0.005)
            ticks += 1
    def wait(number):
        assert limiter["a"].acquire("x")
        order.append(number)
    started = time.monotonic()
    waiters = [gevent.spawn(wait, number) for number in range(50)]
    gevent.joinall([gevent.spawn(tick), *waiters], raise_error=True)
    took = time.monotonic() - started
    assert order == list(range(50)), order
    assert took >= 0.49, took
    assert ticks > 10, ticks
"""


@pytest.mark.filterwarnings("ignore")
def test_under_gevent_a_wait_lets_others_run(segment_name: str) -> None:
    pytest.importorskip("gevent", reason="gevent is not installed")
    done = subprocess.run(
        [sys.executable, "-c", GEVENT, segment_name],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
