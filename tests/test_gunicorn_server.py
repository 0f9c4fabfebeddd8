"""Real gunicorn servers: the bound over workers that come and go, and the table's life.

A request counts as admitted when its 200 arrived. One whose connection ended without an answer was
in the hands of a worker that was killed, and may have been admitted.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from demo.clients import NO_ANSWER, NS_PER_S, Clients, ask
from demo.server import Server
from shmlimit import Limiter
from shmlimit.process import process_start_ticks
from tests.servers import HOOKS, PATIENCE_S, config_file, running, wait_until, workers_of

RATE_PER_S, BURST = 150, 300
OFFERED_PER_S = 4 * RATE_PER_S


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """shmlimit.toml where the servers run."""
    return config_file(tmp_path, segment_name, f"{RATE_PER_S}/s burst {BURST}", monkeypatch)


def assert_exact(clients: Clients, limiter: Limiter) -> None:
    """The bound, both ways, by the clients' count and by the table's."""
    admitted, lost, refused = map(clients.count, (200, NO_ANSWER, 429))
    assert admitted + lost + refused == len(clients.answers)
    assert refused, "more was offered than the limit lets pass"
    bound = BURST + RATE_PER_S * clients.elapsed_ns() // NS_PER_S
    assert admitted <= bound
    # At a refusal less than one cell was left. So from the first to the last one everything that
    # came in between was taken: by requests with an answer, or in flight in a killed worker.
    refusals = [answer for answer in clients.answers if answer.status == 429]
    first = min(refusals, key=lambda answer: answer.answered_ns)
    last_ns = max(answer.sent_ns for answer in refusals)
    taken = sum(a.status != 429 and a.answered_ns > first.sent_ns for a in clients.answers)
    assert taken >= RATE_PER_S * (last_ns - first.answered_ns) // NS_PER_S - 1
    counted = limiter.counters()["per_ip"]["allowed"] - 1  # the one before the load
    assert admitted <= counted <= min(admitted + lost, bound)


def test_the_limit_is_exact_over_workers_that_are_killed(file: Path, segment: Path) -> None:
    with running(file, *HOOKS, "--workers", "4") as server:
        with Limiter.from_config(file) as limiter:
            killed: set[int] = set()
            with Clients(server.port, OFFERED_PER_S) as clients:
                for _ in range(9):
                    time.sleep(1)
                    worker = min(workers_of(server.process.pid) - killed)
                    os.kill(worker, signal.SIGKILL)
                    killed.add(worker)
                time.sleep(1)
            assert len(killed) == 9
            assert_exact(clients, limiter)
            # a busy machine may be slow to answer the very last requests
            last_ns = max(answer.sent_ns for answer in clients.answers)
            elapsed_ns = last_ns - min(answer.answered_ns for answer in clients.answers)
            assert clients.count(200) >= 0.99 * (BURST + RATE_PER_S * elapsed_ns / NS_PER_S)
            assert limiter.check().live == 1
        assert server.stop() == 0
    assert not segment.exists()


def test_the_limit_is_exact_over_workers_that_are_recycled_added_and_removed(
    file: Path, segment: Path
) -> None:
    recycling = ("--max-requests", "200", "--max-requests-jitter", "50")
    with running(file, *HOOKS, "--workers", "2", *recycling) as server:
        first = workers_of(server.process.pid)
        with Limiter.from_config(file) as limiter:
            with Clients(server.port, OFFERED_PER_S) as clients:
                for number in (signal.SIGTTIN, signal.SIGTTIN, signal.SIGTTOU, signal.SIGTTOU):
                    time.sleep(1)
                    server.process.send_signal(number)
                time.sleep(1)
            assert clients.count(NO_ANSWER) == 0
            assert server.log.read_text().count("Handling signal: tt") == 4
            assert_exact(clients, limiter)
            assert not first & workers_of(server.process.pid)
    assert not segment.exists()


def test_a_reload_keeps_the_buckets(file: Path) -> None:
    file.write_text(file.read_text().replace(f"{RATE_PER_S}/s burst {BURST}", "2/h"))
    with running(file, *HOOKS, "--workers", "2") as server:
        assert [ask(server.port).status for _ in range(2)] == [200, 429]
        first = workers_of(server.process.pid)
        server.process.send_signal(signal.SIGHUP)
        wait_until(
            lambda: (
                len(workers_of(server.process.pid) - first) == 2
                and not first & workers_of(server.process.pid)
            )
        )
        assert ask(server.port).status == 429


@pytest.mark.parametrize(
    "kind",
    [
        ("--workers", "4", "--preload"),
        ("--workers", "2", "--threads", "4"),
        ("--workers", "2", "--worker-class", "gevent"),
    ],
    ids=" ".join,
)
def test_other_kinds_of_workers_share_the_masters_table(
    file: Path, segment: Path, kind: tuple[str, ...]
) -> None:
    with running(file, *HOOKS, *kind) as server, Limiter.from_config(file) as limiter:
        with Clients(server.port, OFFERED_PER_S) as clients:
            time.sleep(3)
        assert_exact(clients, limiter)
    assert not segment.exists()


def test_a_config_file_of_ones_own_may_import_the_hooks(file: Path, segment: Path) -> None:
    conf = file.with_name("gunicorn.conf.py")  # gunicorn finds it there by itself
    conf.write_text("from gunicorn_hooks import *\n\nworkers = 2\n")
    with running(file) as server:
        assert segment.exists()
        wait_until(lambda: len(workers_of(server.process.pid)) == 2)
        assert f"shmlimit: {segment}" in server.log.read_text()
        assert server.stop() == 0
    assert not segment.exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT])
def test_the_table_is_gone_after_the_server(
    file: Path, segment: Path, number: signal.Signals
) -> None:
    with running(file, *HOOKS, "--workers", "2") as server:
        assert segment.exists()
        assert server.stop(number) == 0
    assert not segment.exists()


def test_a_server_without_its_limits_does_not_start(file: Path, segment: Path) -> None:
    file.write_text(file.read_text().replace("rate =", "rat ="))
    with Server(file.parent, *HOOKS, "demo.app:app") as server:
        assert server.process.wait(PATIENCE_S) == 1
        log = server.log.read_text()
        assert f"{file}: limits.per_ip.rat: is unknown; did you mean 'rate'?" in log
        assert "Traceback" not in log
    assert not segment.exists()


def test_a_file_that_was_broken_since_stops_no_worker_from_starting(file: Path) -> None:
    with running(file, *HOOKS, "--workers", "1") as server:
        (worker,) = workers_of(server.process.pid)
        file.write_text("broken")
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: workers_of(server.process.pid) - {worker})
        assert ask(server.port).status == 200
        file.unlink()


def test_after_a_kill_of_the_master_the_last_worker_removes_the_table(
    file: Path, segment: Path
) -> None:
    with running(file, *HOOKS, "--workers", "4", "--timeout", "2") as server:
        server.stop(signal.SIGKILL)
        wait_until(lambda: not segment.exists())


def test_after_a_kill_of_all_the_next_start_goes_on_with_the_buckets(
    file: Path, segment: Path
) -> None:
    file.write_text(file.read_text().replace(f"{RATE_PER_S}/s burst {BURST}", "2/h"))
    with running(file, *HOOKS, "--workers", "2") as server:
        server.process.send_signal(signal.SIGSTOP)  # it starts no new workers from here on
        os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)
        workers = workers_of(server.process.pid)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: all(process_start_ticks(worker) is None for worker in workers))
        server.stop(signal.SIGKILL)
    assert segment.exists()
    with running(file, *HOOKS, "--workers", "2") as server:
        assert ask(server.port).status == 429
    assert not segment.exists()


STUCK = """
import pathlib, time
from shmlimit.http.wsgi import RateLimitMiddleware

def stuck(environ, start_response):
    if environ["PATH_INFO"] == "/stuck":
        pathlib.Path("is_stuck").touch()
        time.sleep(600)
    start_response("200 OK", [])
    return []

app = RateLimitMiddleware(stuck)
"""


def get_stuck(server: Server, directory: Path) -> socket.socket:
    """A request that its worker is in, for as long as the worker lives."""
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(b"GET /stuck HTTP/1.1\r\nHost: demo\r\n\r\n")
    wait_until((directory / "is_stuck").exists)
    return connection


def test_the_table_is_gone_though_a_worker_had_to_be_killed_at_the_end(
    file: Path, segment: Path
) -> None:
    file.with_name("stuck.py").write_text(STUCK)
    stop_soon = ("--workers", "2", "--graceful-timeout", "1")
    with running(file, *HOOKS, *stop_soon, app="stuck:app") as server:
        with get_stuck(server, file.parent):
            assert server.stop() == 0
        assert server.log.read_text().count("Worker exiting") == 1  # of two
    assert not segment.exists()


def test_a_worker_killed_for_its_timeout_changes_nothing(file: Path, segment: Path) -> None:
    file.write_text(file.read_text().replace(f"{RATE_PER_S}/s burst {BURST}", "2/h"))
    file.with_name("stuck.py").write_text(STUCK)
    with running(file, *HOOKS, "--workers", "1", "--timeout", "1", app="stuck:app") as server:
        with get_stuck(server, file.parent) as connection:
            connection.settimeout(PATIENCE_S)
            while connection.recv(4096):  # until its worker is gone
                pass
        assert ask(server.port).status == 429  # both cells stay taken
        assert "WORKER TIMEOUT" in server.log.read_text()
    assert not segment.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start workers as another user")
def test_the_table_belongs_to_the_workers_user_though_the_app_is_preloaded(
    file: Path, segment_name: str
) -> None:
    segment = Path(f"/dev/shm/shmlimit.65534.{segment_name}")
    with running(file, *HOOKS, "--workers", "2", "--preload", "--user", "65534") as server:
        assert segment.stat().st_uid == 65534
        (path,) = Path("/dev/shm").glob(f"shmlimit.*.{segment_name}")
        assert path == segment
        assert ask(server.port).status == 200
        assert server.stop() == 0
    assert not segment.exists()
