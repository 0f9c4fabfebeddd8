"""uvicorn with workers of its own, which it spawns: the first makes the table, the rest attach."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from demo.clients import ask
from demo.server import ServerProcess
from shmlimit import Limiter
from tests.servers import config_file, wait_until

WORKERS = 4

pytest.importorskip("uvicorn", reason="uvicorn is not installed")


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return config_file(tmp_path, segment_name, "20/h", monkeypatch)


@pytest.fixture
def server(file: Path) -> Iterator[ServerProcess]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        command = [sys.executable, "-m", "uvicorn", "tests.asgi_app:app"]
        command += ["--fd", str(listener.fileno()), "--workers", str(WORKERS)]
        port = listener.getsockname()[1]
        descriptors = [listener.fileno()]
        started = ServerProcess(file.parent, "uvicorn.log", port, command, None, descriptors)
    with started:
        try:
            wait_until(lambda: started.log.read_text().count("startup complete") == WORKERS)
            yield started
        finally:
            print(started.log.read_text())


def test_twenty_of_a_hundred_requests_pass_over_four_workers(
    server: ServerProcess, file: Path
) -> None:
    segment = Limiter.from_config(file)
    with segment, ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, [server.port] * 100))
        told = [answer.status for answer in answers]
        assert (told.count(200), told.count(429)) == (20, 80)
        assert segment.counters()["per_ip"]["allowed"] == 20
    assert server.stop() in (0, -signal.SIGTERM)
    wait_until(lambda: not segment.path.exists())


def test_a_worker_that_is_killed_is_replaced_and_the_count_goes_on(
    server: ServerProcess, segment_name: str
) -> None:
    first = ask(server.port)
    assert first.status == 200
    os.kill(first.worker, signal.SIGKILL)
    wait_until(lambda: server.log.read_text().count("startup complete") == WORKERS + 1)
    told = [ask(server.port).status for _ in range(30)]
    assert (told.count(200), told.count(429)) == (19, 11)
    server.stop()
    wait_until(lambda: not list(Path("/dev/shm").glob(f"shmlimit*{segment_name}*")))
