"""Each kind of worker that gunicorn has: one table, and the life of servers that speak ASGI."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
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
    ended,
    pid_in,
    reload,
    running,
    statuses,
    wait_until,
    workers_of,
)

ASGI_APP = "tests.asgi_app:app"
GUNICORNS_ASGI = pytest.param(
    "asgi",
    marks=pytest.mark.skipif(
        gunicorn.version_info < (24,), reason="this gunicorn has no ASGI worker of its own"
    ),
)
UVICORNS = pytest.param(
    "uvicorn_worker.UvicornWorker",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("uvicorn_worker") is None, reason="uvicorn-worker is missing"
    ),
)


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return config_file(tmp_path, segment_name, "20/h", monkeypatch)


def app_of(kind: str) -> str:
    return "demo.app:app" if kind in ("sync", "gthread", "gevent") else ASGI_APP


@pytest.mark.parametrize("kind", ["sync", "gthread", "gevent", GUNICORNS_ASGI, UVICORNS])
def test_twenty_of_a_hundred_requests_pass_over_four_workers(
    file: Path, segment: Path, kind: str
) -> None:
    workers = ("--workers", "4", "--worker-class", kind)
    with running(file, *HOOKS, *workers, app=app_of(kind)) as server:
        wait_until(lambda: len(workers_of(server.process.pid)) == 4)
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(ask, [server.port] * 99))
        told = [answer.status for answer in answers]
        assert (told.count(200), told.count(429)) == (19, 80)  # one was asked before
        with Limiter.from_config(file) as limiter:
            counted = limiter.counters()["per_ip"]
            assert (counted["allowed"], counted["denied"]) == (20, 80)
        assert "has opened segment" not in server.log.read_text()
        assert server.stop() == 0
    assert not segment.exists()


@pytest.mark.parametrize("kind", [GUNICORNS_ASGI, UVICORNS])
def test_an_asgi_server_keeps_its_buckets_through_a_reload_and_an_upgrade(
    file: Path, segment: Path, kind: str
) -> None:
    pid_file = file.with_name("pid")
    arguments = ("--workers", "2", "--worker-class", kind, "--pid", str(pid_file))
    with running(file, *HOOKS, *arguments, app=ASGI_APP, upgradable=True) as server:
        old = server.process.pid
        assert statuses(server.port, 5) == [200] * 5  # six of twenty are taken
        file.write_text(file.read_text().replace("20/h", "20/h burst 10"))
        reload(old, server.log, 2)
        assert statuses(server.port, 2) == [200] * 2  # eight of ten
        server.process.send_signal(signal.SIGUSR2)
        new = pid_in(file.with_name("pid.2"))
        try:
            wait_until(lambda: len(workers_of(new)) == 2)
            assert server.stop() == 0
            assert statuses(server.port, 4) == [200] * 2 + [429] * 2
        finally:
            os.kill(new, signal.SIGTERM)
        wait_until(lambda: ended(new))
    assert not segment.exists()


@pytest.mark.parametrize("kind", [GUNICORNS_ASGI, UVICORNS])
def test_tasks_of_all_workers_wait_in_one_line(file: Path, kind: str) -> None:
    file.write_text(file.read_text().replace("20/h", "20/s burst 1"))
    workers = ("--workers", "2", "--worker-class", kind)
    with running(file, *HOOKS, *workers, app=ASGI_APP) as server:
        wait_until(lambda: len({ask(server.port, "/wait").worker for _ in range(8)}) == 2)
        workers_that_answered: set[int] = set()
        while len(workers_that_answered) < 2:  # one may take all connections
            with ThreadPoolExecutor(20) as clients:
                started_s = time.monotonic()
                answers = list(clients.map(lambda _: ask(server.port, "/wait"), range(20)))
                took_s = time.monotonic() - started_s
            assert [answer.status for answer in answers] == [200] * 20
            # Each waits for its 50 ms behind all others; by itself in each worker it would be half.
            assert took_s >= 18 * 0.05
            workers_that_answered = {answer.worker for answer in answers}


@pytest.mark.parametrize("preload", [(), ("--preload",)], ids=["loaded", "preloaded"])
@pytest.mark.parametrize("kind", [GUNICORNS_ASGI, UVICORNS])
def test_an_asgi_app_that_fails_to_import_leaves_no_table(
    file: Path, segment: Path, kind: str, preload: tuple[str, ...]
) -> None:
    file.with_name("failing.py").write_text("raise LookupError('at import')\n")
    workers = ("--workers", "2", "--worker-class", kind)
    with Server(file.parent, *HOOKS, *workers, *preload, "failing:app") as server:
        assert server.process.wait(PATIENCE_S) != 0
        log = server.log.read_text()
        assert "LookupError: at import" in log
        assert f"shmlimit: {segment}" in log
    assert not segment.exists()


def test_an_asgi_app_whose_startup_fails_leaves_no_table(file: Path, segment: Path) -> None:
    if gunicorn.version_info < (24,):
        pytest.skip("this gunicorn has no ASGI worker of its own")
    file.with_name("failing.py").write_text(
        "async def app(scope, receive, send):\n"
        "    await receive()\n"
        "    await send({'type': 'lifespan.startup.failed', 'message': 'on purpose'})\n"
    )
    with Server(file.parent, *HOOKS, "--worker-class", "asgi", "failing:app") as server:
        assert server.process.wait(PATIENCE_S) != 0
        assert "on purpose" in server.log.read_text()
    assert not segment.exists()
