"""Real gunicorn servers: reloads, upgrades, and ends that a user sees."""

from __future__ import annotations

import os
import signal
from pathlib import Path

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


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """shmlimit.toml where the servers run: ten requests, then one in six minutes."""
    return config_file(tmp_path, segment_name, "10/h", monkeypatch)


def hup(server: Server, workers: int, told: str = "shmlimit: reloaded") -> None:
    reload(server.process.pid, server.log, workers, told)


# Reloads.


@pytest.mark.parametrize("kind", [(), ("--preload",)], ids=["loaded", "preloaded"])
def test_a_reload_changes_limits_and_keeps_buckets(file: Path, kind: tuple[str, ...]) -> None:
    with running(file, *HOOKS, "--workers", "2", *kind) as server:
        assert statuses(server.port, 5) == [200] * 5  # six of ten are taken
        file.write_text(file.read_text().replace("10/h", "10/h burst 8"))
        hup(server, 2)
        assert statuses(server.port, 3) == [200, 200, 429]
        # The file names another limit with another key: it alone is applied.
        text = file.read_text().replace("per_ip", "per_key").replace('"ip"', '"header:Host"')
        file.write_text(text.replace("10/h burst 8", "2/h"))
        hup(server, 2)
        assert statuses(server.port, 3) == [200, 200, 429]
        assert server.log.read_text().count("shmlimit: reloaded: per_key 2/h by header:Host") == 1


def test_twenty_reloads_of_good_and_bad_files_leave_one_table_and_no_files_open(
    file: Path, segment: Path
) -> None:
    with running(file, *HOOKS, "--workers", "1") as server:
        master = server.process.pid
        hup(server, 1)
        files = len(os.listdir(f"/proc/{master}/fd"))
        good = file.read_text()
        for number in range(20):
            if number % 2:
                file.write_text(good)
                hup(server, 1)
            else:
                file.write_text("broken" if number % 4 else good.replace('key = "ip"', ""))
                hup(server, 1, "the limits stay as they are; correct this and send HUP again")
        # Fewer than after the first, when a worker on its way out still had its file.
        wait_until(lambda: len(os.listdir(f"/proc/{master}/fd")) <= files)
        assert list(Path("/dev/shm").glob(f"{segment.name}*")) == [segment]
        assert statuses(server.port, 10) == [200] * 9 + [429]
        assert "Traceback" not in server.log.read_text()
        assert server.stop() == 0
    assert not segment.exists()


def test_an_upgrade_shares_the_table_between_the_masters(file: Path, segment: Path) -> None:
    pid_file = file.with_name("pid")
    with running(file, *HOOKS, "--workers", "2", "--pid", str(pid_file), upgradable=True) as server:
        old = server.process.pid
        assert statuses(server.port, 6) == [200] * 6  # seven of ten are taken
        server.process.send_signal(signal.SIGUSR2)
        new = pid_in(file.with_name("pid.2"))
        try:
            wait_until(lambda: len(workers_of(new)) == 2 and len(workers_of(old)) == 3)
            assert statuses(server.port, 20) == [200] * 3 + [429] * 17
            assert server.stop() == 0
            assert segment.exists()
            assert statuses(server.port, 2) == [429, 429]
            with Limiter.from_config(file) as limiter:
                assert limiter.counters()["per_ip"]["allowed"] == 10
        finally:
            os.kill(new, signal.SIGTERM)
        wait_until(lambda: ended(new))
    assert not segment.exists()


def test_an_app_that_is_edited_under_reload_keeps_its_limits(file: Path, segment: Path) -> None:
    app = file.with_name("edited.py")
    app.write_text("from demo.app import app\n")
    polling = ("--reload", "--reload-engine", "poll")
    with running(file, *HOOKS, "--workers", "1", *polling, app="edited:app") as server:
        for edit in range(4):
            before = workers_of(server.process.pid)
            app.write_text(f"from demo.app import app\nEDIT = {edit}\n")
            wait_until(lambda before=before: workers_of(server.process.pid) - before)  # type: ignore[misc]
            assert ask(server.port).status == 200
        assert statuses(server.port, 6) == [200] * 5 + [429]
        assert server.stop() == 0
    assert not segment.exists()


# Workers that come and go.


def test_recycling_keeps_the_count_exact_and_the_rows_of_counters_few(
    file: Path, segment: Path
) -> None:
    file.write_text(file.read_text().replace("10/h", "200/h"))
    recycling = ("--workers", "4", "--max-requests", "5")
    with running(file, *HOOKS, *recycling) as server:
        answered = statuses(server.port, 499)
        assert (answered.count(200), answered.count(429)) == (199, 300)
        with Limiter.from_config(file) as limiter:
            counted = limiter.counters()["per_ip"]
            assert (counted["allowed"], counted["denied"]) == (200, 300)
            # at most those that are ending beside their successors
            assert 0 < len(limiter.worker_counters()) - 1 <= 2 * 4
        assert server.log.read_text().count("Booting worker") >= 90
    assert not segment.exists()


def test_a_thread_may_add_and_remove_workers(file: Path, segment: Path) -> None:
    """gunicorn's control socket changes their number from a thread, beside the main loop."""
    conf = file.with_name("gunicorn.conf.py")
    conf.write_text(
        "import threading\nfrom gunicorn_hooks import *\n\n"
        "def when_ready(server):\n"
        "    def change():\n"
        "        for _ in range(100):\n"
        "            server.num_workers += 1\n"
        "            server.num_workers -= 1\n"
        "        server.log.info('changed')\n"
        "    threading.Thread(target=change).start()\n"
    )
    with running(file, "--workers", "2") as server:
        wait_until(lambda: "changed" in server.log.read_text())
        wait_until(lambda: len(workers_of(server.process.pid)) == 2)
        assert statuses(server.port, 10) == [200] * 9 + [429]
        assert server.stop() == 0
        assert "shmlimit: its hook" not in server.log.read_text()
    assert not segment.exists()


def test_hooks_of_ones_own_do_not_hide_ours(file: Path, segment: Path) -> None:
    conf = file.with_name("gunicorn.conf.py")
    conf.write_text(
        "from gunicorn_hooks import *\n\n"
        + "".join(
            f"def {hook}(server):\n    server.log.info('my {hook}')\n\n"
            for hook in ("on_starting", "on_reload", "on_exit")
        )
    )
    with running(file, "--workers", "1") as server:
        file.write_text(file.read_text().replace("10/h", "10/h burst 3"))
        hup(server, 1)
        assert statuses(server.port, 3) == [200, 200, 429]
        assert server.stop() == 0
        log = server.log.read_text()
        assert [log.count(f"my {hook}") for hook in ("on_starting", "on_reload", "on_exit")] == [
            1
        ] * 3
        assert "itself" not in log
    assert not segment.exists()


def test_what_shmlimit_logs_is_in_gunicorns_log_unless_the_app_logs_itself(file: Path) -> None:
    broken = "from demo.app import app\napp._decide = None\n"
    file.with_name("silent.py").write_text(broken)
    file.with_name("talking.py").write_text(
        "import logging\nlogging.basicConfig(format='my own: %(message)s')\n" + broken
    )
    for app in ("silent", "talking"):
        with running(file, *HOOKS, "--workers", "1", app=f"{app}:app") as server:
            told = [line for line in server.log.read_text().splitlines() if "unlimited" in line]
            assert len(told) == 1
            assert told[0].startswith("my own: requests" if app == "talking" else "[20")
        server.log.unlink()


def test_workers_without_the_hooks_say_that_they_opened_the_table(file: Path) -> None:
    with running(file, "--workers", "1", "--max-requests", "2") as server:
        assert statuses(server.port, 4) == [200] * 4
        log = server.log.read_text()
        assert 2 <= log.count("this gunicorn worker has opened segment") <= 3
        assert log.count("gunicorn -c python:gunicorn_hooks") >= 2


# Ends.


def test_ctrl_c_ends_all_processes_without_a_traceback(file: Path, segment: Path) -> None:
    with running(file, *HOOKS, "--workers", "2") as server:
        os.killpg(server.process.pid, signal.SIGINT)  # as a terminal does
        assert server.process.wait(PATIENCE_S) == 0
        assert "Traceback" not in server.log.read_text()
    assert not segment.exists()


@pytest.mark.parametrize("kind", [(), ("--preload",)], ids=["loaded", "preloaded"])
def test_an_app_that_fails_to_import_leaves_no_table(
    file: Path, segment: Path, kind: tuple[str, ...]
) -> None:
    file.with_name("failing.py").write_text(
        "from demo.app import app\nraise LookupError('at import')\n"
    )
    with Server(file.parent, *HOOKS, "--workers", "2", *kind, "failing:app") as server:
        assert server.process.wait(PATIENCE_S) != 0
        log = server.log.read_text()
        assert "LookupError: at import" in log
        assert f"shmlimit: {segment}" in log
    assert not segment.exists()


def test_a_daemon_has_its_table_as_long_as_it_runs(file: Path, segment: Path) -> None:
    pid_file, log = file.with_name("pid"), file.with_name("daemon.log")
    daemon = ("--daemon", "--pid", str(pid_file), "--error-logfile", str(log))
    with Server(file.parent, *HOOKS, "--workers", "2", *daemon, "demo.app:app") as server:
        assert server.process.wait(PATIENCE_S) == 0
        master = pid_in(pid_file)
        try:
            assert statuses(server.port, 11) == [200] * 10 + [429]
            assert segment.exists()
            assert f"shmlimit: {segment}" in log.read_text()
            file.write_text(file.read_text().replace("10/h", "20/h").replace("10k", "11k"))
            reload(master, log, 2, "shmlimit: reloaded: per_ip 20/h by ip")
            assert ask(server.port).status == 429  # all of an hour is owed still
            assert "ran at 10/h, enforce" in log.read_text()
            assert "it needs a restart" in log.read_text()
        finally:
            os.kill(master, signal.SIGTERM)
        wait_until(lambda: ended(master))
    assert not segment.exists()
