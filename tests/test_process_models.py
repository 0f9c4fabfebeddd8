"""Processes that are started by other means than a gunicorn master: one table for all of them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from shmlimit import Limiter
from shmlimit.segment_name import DIRECTORY

ROOT = Path(__file__).parents[1]
METHODS = ("fork", "spawn", "forkserver")
BURST = 100


@pytest.fixture
def limiter(segment_name: str) -> Iterator[Limiter]:
    with Limiter(segment_name, keys=1000, per_ip=f"{BURST}/d") as limiter:
        yield limiter


def hits(limiter: Limiter, requests: int) -> int:
    return sum(limiter["per_ip"].allow("x") for _ in range(requests))


def hits_by_name(name: str, requests: int) -> int:
    with Limiter(name, keys=1000, per_ip=f"{BURST}/d") as limiter:
        return hits(limiter, requests)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["sent", "by name"])
def test_a_pool_shares_one_limit(limiter: Limiter, method: str, how: str) -> None:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(4, mp_context=context) as pool:
        if how == "sent":
            told = [pool.submit(hits, limiter, 50) for _ in range(8)]
        else:
            told = [pool.submit(hits_by_name, limiter.name, 50) for _ in range(8)]
        assert sum(each.result(60) for each in told) == BURST
    assert limiter.path.exists(), "those that ended left it to who has it still"
    assert limiter.counters()["per_ip"]["denied"] == 8 * 50 - BURST


PROGRAM = """
import multiprocessing, sys
import shmlimit

def work(limiter):
    assert limiter["a"].hit("x")

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    with shmlimit.Limiter(sys.argv[1], keys=100, a="10/d") as limiter:
        for _ in range(3):
            child = context.Process(target=work, args=(limiter,))
            child.start()
            child.join(60)
            assert child.exitcode == 0
        assert limiter["a"].peek("x", 0).remaining == 7
"""


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_said_of_leaked_shared_memory(
    segment_name: str, method: str, tmp_path: Path
) -> None:
    """Python's resource tracker would remove what it believes to be forgotten, and say so."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program), segment_name, method],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not list(Path(DIRECTORY).glob(f"shmlimit*{segment_name}*"))


TASKS = 100
CELERY_APP = """
from celery import Celery
from shmlimit import Limiter

limiter = Limiter.from_config()  # before the pool forks
app = Celery("limited", broker="filesystem://", backend="file://{directory}/results")
app.conf.broker_transport_options = {{
    "data_folder_in": "{directory}/queue", "data_folder_out": "{directory}/queue",
}}
app.conf.worker_max_tasks_per_child = 1
app.conf.broker_connection_retry_on_startup = True

@app.task
def limited():
    return bool(limiter["per_ip"].hit("x"))
"""


def test_celerys_pool_shares_one_limit_though_each_process_ends_after_one_task(
    segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    celery = pytest.importorskip("celery", reason="celery is not installed")
    for name in ("queue", "results"):
        (tmp_path / name).mkdir()
    (tmp_path / "shmlimit.toml").write_text(
        f'[table]\nname = "{segment_name}"\nkeys = "1k"\n[limits.per_ip]\nrate = "30/d"\n'
    )
    (tmp_path / "limited_tasks.py").write_text(CELERY_APP.format(directory=tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    sender = celery.Celery("sender", broker="filesystem://", backend=f"file://{tmp_path}/results")
    folders = {"data_folder_in": f"{tmp_path}/queue", "data_folder_out": f"{tmp_path}/queue"}
    sender.conf.broker_transport_options = folders
    log = tmp_path / "celery.log"
    command = (
        "-m",
        "celery",
        "-A",
        "limited_tasks",
        "worker",
        "--concurrency",
        "4",
        "-P",
        "prefork",
    )
    with log.open("wb") as file:
        worker = subprocess.Popen([sys.executable, *command], stdout=file, stderr=file)
    try:
        sent = [sender.send_task("limited_tasks.limited") for _ in range(TASKS)]
        answers = [each.get(timeout=120) for each in sent]
    finally:
        worker.terminate()
        worker.wait(60)
        print(log.read_text())
    assert answers.count(True) == 30
    assert not list(Path(DIRECTORY).glob(f"shmlimit*{segment_name}*"))
