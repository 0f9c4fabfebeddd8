"""uWSGI: workers that its master forks, with and without lazy-apps, and threads not enabled."""

from __future__ import annotations

import os
import signal
import socket
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.clients import ask
from demo.server import ROOT, ServerProcess
from shmlimit import Limiter
from tests.servers import config_file, statuses, wait_until

WORKERS, BURST = 4, 100
RELOADS = 20 if int(os.environ.get("SHMLIMIT_SOAK", "0")) else 4  # a reload takes uWSGI a second
PROGRAM = os.path.join(sysconfig.get_path("scripts"), "uwsgi")
EAGER, LAZY = (), ("--lazy-apps",)
KINDS = [pytest.param(EAGER, id="eager"), pytest.param(LAZY, id="lazy")]

pytest.importorskip("pyuwsgi", reason="pyuwsgi is not installed")


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return config_file(tmp_path, segment_name, f"{BURST}/d", monkeypatch)


@contextmanager
def uwsgi(directory: Path, *arguments: str) -> Iterator[ServerProcess]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [PROGRAM, "--http-socket", f"127.0.0.1:{port}", "--master", "--die-on-term"]
    command += ["--workers", str(WORKERS), "--wsgi", "demo.app:app", "--need-app", *arguments]
    # a reload executes the interpreter that the virtual environment was made from
    paths = [str(directory), str(ROOT), sysconfig.get_path("purelib")]
    environment = {"PYTHONPATH": os.pathsep.join(paths)}
    with ServerProcess(directory, "uwsgi.log", port, command, environment) as server:
        try:
            wait_until(lambda: generations(server) == 1)
            yield server
        finally:
            print(server.log.read_text())


def generations(server: ServerProcess) -> int:
    """How many times all workers were started, each with its application."""
    log = server.log.read_text()
    apps = WORKERS if "--lazy-apps" in server.command else 1
    return min(
        log.count("WSGI app 0 (mountpoint='') ready") // apps,
        log.count(f"spawned uWSGI worker {WORKERS} "),
    )


def segments(name: str) -> list[Path]:
    return list(Path("/dev/shm").glob(f"shmlimit*{name}*"))


def end(server: ServerProcess, file: Path, remaining: int, *kind: str) -> None:
    """Stops it. Without lazy-apps the table is left to the next start: uWSGI's master was its last
    user, and runs no Python code when it ends."""
    server.stop()
    with Limiter.from_config(file) as limiter:
        left = BURST if kind == LAZY else remaining
        assert limiter["per_ip"].peek("ip:127.0.0.1", 0).remaining == left


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_exact_over_the_workers(
    file: Path, segment_name: str, kind: tuple[str, ...]
) -> None:
    with uwsgi(file.parent, *kind) as server:
        answers = [ask(server.port) for _ in range(120)]
        told = [answer.status for answer in answers]
        assert (told.count(200), told.count(429)) == (BURST, 20)
        with Limiter.from_config(file) as limiter:
            assert limiter.counters()["per_ip"]["allowed"] == BURST
        end(server, file, 0, *kind)
    assert segments(segment_name) == []


@pytest.mark.parametrize("kind", KINDS)
def test_reloads_leave_one_table(file: Path, segment_name: str, kind: tuple[str, ...]) -> None:
    """With lazy-apps it is a new one each time: all workers end before the next ones start."""
    with uwsgi(file.parent, *kind) as server:
        for reload in range(RELOADS):
            assert ask(server.port).status == 200
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda done=reload + 2: generations(server) == done)  # type: ignore[misc]
            assert len(segments(segment_name)) == 1
        passes = BURST if kind == LAZY else BURST - RELOADS
        assert statuses(server.port, passes + 1) == [200] * passes + [429]
        end(server, file, 0, *kind)
    assert segments(segment_name) == []


def test_a_worker_that_is_killed_changes_nothing(file: Path, segment_name: str) -> None:
    with uwsgi(file.parent) as server:
        first = ask(server.port)
        os.kill(first.worker, signal.SIGKILL)
        wait_until(lambda: "Respawned uWSGI worker" in server.log.read_text())
        told = statuses(server.port, 119)
        assert (told.count(200), told.count(429)) == (BURST - 1, 20)
        end(server, file, 0)
    assert segments(segment_name) == []


def test_two_servers_with_names_of_their_own_are_separate(file: Path, segment_name: str) -> None:
    second = file.with_name("second") / "shmlimit.toml"
    second.parent.mkdir()
    second.write_text(file.read_text().replace(segment_name, f"{segment_name}-second"))
    with uwsgi(file.parent) as one, uwsgi(second.parent) as other:
        assert statuses(one.port, BURST + 1) == [200] * BURST + [429]
        assert statuses(other.port, 10) == [200] * 10
        end(one, file, 0)
        assert statuses(other.port, 1) == [200]
        end(other, second, BURST - 11)
    assert segments(segment_name) == []
