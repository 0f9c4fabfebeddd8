"""Real gunicorn masters of one table: strangers, upgrades, and a table of another size."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from demo.server import Server
from tests.servers import (
    HOOKS,
    PATIENCE_S,
    config_file,
    ended,
    pid_in,
    running,
    statuses,
    wait_until,
    workers_of,
)


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return config_file(tmp_path, segment_name, "10/h", monkeypatch)


def second_directory(file: Path, *lines: str) -> Path:
    """The same file for a second server, with those lines in [table]."""
    directory = file.with_name("second")
    directory.mkdir()
    text = file.read_text().replace("[limits", "\n".join([*lines, "[limits"]))
    (directory / "shmlimit.toml").write_text(text)
    return directory


@pytest.mark.parametrize("kind", [(), ("--preload",)], ids=["loaded", "preloaded"])
def test_a_second_server_is_refused_and_harms_nothing(
    file: Path, segment: Path, kind: tuple[str, ...]
) -> None:
    with running(file, *HOOKS, "--workers", "2", *kind) as server:
        inode = segment.stat().st_ino
        second = second_directory(file)
        with Server(second, *HOOKS, *kind, "demo.app:app") as refused:
            assert refused.process.wait(PATIENCE_S) == 1
            told = refused.log.read_text()
            assert f"segment {segment} is the table of another server, which runs" in told
            assert f"in use by {server.process.pid}, " in told
            assert "shared = true" in told
            assert "Traceback" not in told
        assert segment.stat().st_ino == inode
        assert statuses(server.port, 10) == [200] * 9 + [429]


def test_servers_that_are_to_share_one_table_do(file: Path, segment: Path) -> None:
    with running(file, *HOOKS, "--workers", "1") as server:
        second = second_directory(file, "shared = true")
        with Server(second, *HOOKS, "--workers", "1", "demo.app:app") as other:
            assert statuses(other.port, 5) == [200] * 5
            assert statuses(server.port, 5) == [200] * 4 + [429]
            assert server.stop() == 0
            assert statuses(other.port, 1) == [429]
    assert not segment.exists()


@pytest.mark.parametrize("kind", [(), ("--preload",)], ids=["loaded", "preloaded"])
def test_an_upgrade_to_another_size_puts_a_new_table_in_place(
    file: Path, segment: Path, kind: tuple[str, ...]
) -> None:
    pid_file = file.with_name("pid")
    arguments = (*HOOKS, "--workers", "1", "--pid", str(pid_file), *kind)
    with running(file, *arguments, upgradable=True) as server:
        assert statuses(server.port, 10) == [200] * 9 + [429]
        inode, old = segment.stat().st_ino, server.process.pid
        file.write_text(file.read_text().replace("10k", "20k"))
        server.process.send_signal(signal.SIGUSR2)
        new = pid_in(file.with_name("pid.2"))
        try:
            wait_until(lambda: len(workers_of(new)) == 1)
            assert segment.stat().st_ino != inode
            assert "is made anew for this server" in server.log.read_text()
            assert server.stop() == 0
            wait_until(lambda: ended(old))
            assert statuses(server.port, 11) == [200] * 10 + [429]
            with Server(second_directory(file), *HOOKS, "demo.app:app") as third:
                assert third.process.wait(PATIENCE_S) == 1, "the upgraded one is a master too"
        finally:
            os.kill(new, signal.SIGTERM)
        wait_until(lambda: ended(new))
    assert not segment.exists()


def test_a_new_server_shares_the_table_with_workers_that_outlived_theirs(
    file: Path, segment: Path
) -> None:
    """They notice within a second that their master has gone; a stopped one does not."""
    with running(file, *HOOKS, "--workers", "1") as server:
        (worker,) = workers_of(server.process.pid)
        os.kill(worker, signal.SIGSTOP)
        server.process.kill()
        server.process.wait(PATIENCE_S)
        inode = segment.stat().st_ino
        try:
            with running(file, *HOOKS, "--workers", "1") as second:
                assert segment.stat().st_ino == inode
                assert statuses(second.port, 9) == [200] * 8 + [429]
        finally:
            os.kill(worker, signal.SIGCONT)
            wait_until(lambda: ended(worker))
    assert not segment.exists()
