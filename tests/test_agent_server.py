"""Agents beside real gunicorn servers: one works whatever happens to it, and none is left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from demo.clients import Clients, ask
from demo.server import Server
from shmlimit import Limiter
from shmlimit.process import process_start_ticks
from tests.agents import agents_of, beats, is_paired, working
from tests.servers import (
    HOOKS,
    config_file,
    ended,
    pid_in,
    reload,
    running,
    statuses,
    wait_until,
    workers_of,
)

TAKES_OVER_S = 2.0  # at most, after a death
NOBODY = 65534


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """shmlimit.toml where the servers run; their hosts are counted in `hosts` beside it."""
    return files_in(tmp_path, segment_name, monkeypatch)


def files_in(directory: Path, segment_name: str, patch: pytest.MonkeyPatch) -> Path:
    path = config_file(directory, segment_name, "40/s", patch)
    hosts = directory / "hosts"
    hosts.write_text("2\n")
    with path.open("a") as text:
        text.write(f'[hosts]\nsource = "file:{hosts}"\nfallback = 8\nsettle = "200ms"\n')
    return path


def opened(file: Path) -> Limiter:
    """The server's table, once its agent has read the count."""
    limiter = Limiter.from_config(file)
    wait_until(lambda: limiter.hosts.origin == "read")
    return limiter


def test_a_server_has_a_pair_of_agents_that_says_what_it_is(file: Path, segment_name: str) -> None:
    log = file.with_name("error.log")
    with running(file, *HOOKS, "--workers", "2", "--error-logfile", str(log)) as server:
        wait_until(lambda: is_paired(segment_name))
        with opened(file) as limiter:
            (agent,) = working(segment_name)
            assert limiter.hosts.agent_pid == agent
            assert limiter.hosts.agent_start_ticks == process_start_ticks(agent)
            assert limiter.hosts.in_force == 2
        assert len(workers_of(server.process.pid)) == 2
        assert f"[{agent}] [INFO] shmlimit: agent: {agent} works for" in log.read_text()
        assert [fd for fd in open_files(agent) if fd.startswith("socket:")] == []
        assert server.stop() == 0
    wait_until(lambda: not agents_of(segment_name))


def open_files(pid: int) -> list[str]:
    return [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]


def test_an_agent_that_is_killed_under_load_is_replaced_and_no_request_notices(
    file: Path, segment_name: str
) -> None:
    with running(file, *HOOKS, "--workers", "2") as server, opened(file) as limiter:
        wait_until(lambda: is_paired(segment_name))
        with Clients(server.port, 60) as clients:
            for kill in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
                (before,) = working(segment_name)
                os.kill(before, kill)
                killed_at_s = time.monotonic()
                wait_until(lambda before=before: limiter.hosts.agent_pid != before)  # type: ignore[misc]
                assert time.monotonic() - killed_at_s < TAKES_OVER_S
                wait_until(lambda: is_paired(segment_name))
            waiting = (set(agents_of(segment_name)) - set(working(segment_name))).pop()
            os.kill(waiting, signal.SIGKILL)
            wait_until(lambda: is_paired(segment_name) and waiting not in agents_of(segment_name))
            file.with_name("hosts").write_text("4")
            wait_until(lambda: limiter.hosts.in_force == 4)
        assert {answer.status for answer in clients.answers} == {200, 429}
        # 40 at once, and 20 a second for two hosts
        assert clients.count(200) <= 40 + 20 * clients.elapsed_ns() / 1e9 + 1
        assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGQUIT, signal.SIGINT])
def test_no_agent_outlives_its_master(
    file: Path, segment: Path, segment_name: str, end: signal.Signals
) -> None:
    with running(file, *HOOKS, "--workers", "1") as server:
        wait_until(lambda: is_paired(segment_name))
        workers = workers_of(server.process.pid)
        server.stop(end)
        ended_at_s = time.monotonic()
        wait_until(lambda: not agents_of(segment_name))
        assert time.monotonic() - ended_at_s < TAKES_OVER_S
        assert "Traceback" not in server.log.read_text()
        for worker in workers:  # after a SIGKILL they would notice in their own time
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)
            wait_until(lambda worker=worker: ended(worker))  # type: ignore[misc]
    assert not segment.exists()


def test_a_ctrl_c_at_the_terminal_ends_all_without_a_word(file: Path, segment_name: str) -> None:
    with running(file, *HOOKS, "--workers", "2") as server:
        wait_until(lambda: is_paired(segment_name))
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(30) == 0
        wait_until(lambda: not agents_of(segment_name))
        assert "Traceback" not in server.log.read_text()


def test_one_agent_works_through_reloads(file: Path, segment_name: str) -> None:
    with running(file, *HOOKS, "--workers", "1") as server, opened(file) as limiter:
        wait_until(lambda: is_paired(segment_name))
        before = agents_of(segment_name)
        for _ in range(5):
            reload(server.process.pid, server.log, 1)
        assert agents_of(segment_name) == before
        # Both die, and nobody tells the master, which looks at the next reload.
        for agent in before:
            os.kill(agent, signal.SIGSTOP)  # or one would start the next
        for agent in before:
            os.kill(agent, signal.SIGKILL)
        wait_until(lambda: not agents_of(segment_name))
        assert ask(server.port).status == 200
        wait_until(lambda: not limiter.has_agent)  # its lock goes after its title
        reload(server.process.pid, server.log, 1)
        wait_until(lambda: is_paired(segment_name) and beats(limiter))
        assert not set(before) & set(agents_of(segment_name))


def test_an_upgrade_hands_over_to_the_successors_agents(
    file: Path, segment: Path, segment_name: str
) -> None:
    pid_file = file.with_name("pid")
    with running(file, *HOOKS, "--workers", "1", "--pid", str(pid_file), upgradable=True) as server:
        wait_until(lambda: is_paired(segment_name))
        (first,) = working(segment_name)
        server.process.send_signal(signal.SIGUSR2)
        new = pid_in(file.with_name("pid.2"))
        try:
            wait_until(lambda: len(agents_of(segment_name)) == 4)
            with opened(file) as limiter:
                wait_until(lambda: working(segment_name) == [first])
                assert server.stop(signal.SIGQUIT) == 0
                wait_until(lambda: is_paired(segment_name) and working(segment_name) != [first])
                assert working(segment_name) == [limiter.hosts.agent_pid]
                file.with_name("hosts").write_text("5")
                wait_until(lambda: limiter.hosts.in_force == 5)
        finally:
            os.kill(new, signal.SIGTERM)
        wait_until(lambda: ended(new) and not agents_of(segment_name))
    assert not segment.exists()


def test_an_agent_that_is_stopped_shows_by_its_age(file: Path, segment_name: str) -> None:
    with running(file, *HOOKS, "--workers", "1") as server, opened(file) as limiter:
        wait_until(lambda: is_paired(segment_name) and beats(limiter))
        (agent,) = working(segment_name)
        os.kill(agent, signal.SIGSTOP)
        wait_until(lambda: not beats(limiter))
        assert limiter.has_agent
        assert limiter.hosts.agent_pid == agent
        assert ask(server.port).status in (200, 429)
        os.kill(agent, signal.SIGCONT)
        wait_until(lambda: beats(limiter))


def runs_python(uid: int) -> bool:
    """Whether a process of that user can be another Python, with all that it imports."""
    try:
        command = [sys.executable, "-c", "import wsgiref, shmlimit"]
        return subprocess.run(command, user=uid, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a server's workers another user")
@pytest.mark.skipif(not runs_python(NOBODY), reason="other users cannot run this Python")
def test_agents_run_as_the_workers_do(segment_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as directory:  # pytest's are searchable by their owner only
        os.chmod(directory, 0o755)
        file = files_in(Path(directory), segment_name, monkeypatch)
        user = ("--user", str(NOBODY), "--group", str(NOBODY))
        with running(file, *HOOKS, "--workers", "1", *user) as server:
            wait_until(lambda: is_paired(segment_name))
            for agent in agents_of(segment_name):
                status = Path(f"/proc/{agent}/status").read_text()
                for kind in ("Uid", "Gid"):
                    assert f"\n{kind}:" + 4 * f"\t{NOBODY}" + "\n" in status
                assert "\nGroups:\t \n" in status
            limiter = Limiter.from_config(file, owner=NOBODY)
            with limiter:
                wait_until(lambda: limiter.hosts.in_force == 2)
            assert server.stop() == 0


def test_an_app_that_cannot_be_imported_leaves_no_agent(
    file: Path, segment: Path, segment_name: str
) -> None:
    file.with_name("broken.py").write_text("raise RuntimeError('on purpose')\n")
    with Server(file.parent, *HOOKS, "--workers", "1", "broken:app") as server:
        assert server.process.wait(30) == 3
        assert "on purpose" in server.log.read_text()
    wait_until(lambda: not agents_of(segment_name))
    assert not segment.exists()


# Live limits.


def test_a_change_of_the_file_is_what_all_workers_go_by(file: Path, segment_name: str) -> None:
    hosts = file.with_name("hosts")
    hosts.write_text("1")
    file.write_text(file.read_text().replace("40/s", "10/h").replace("= 8", "= 1"))
    good = file.read_text()
    with running(file, *HOOKS, "--workers", "3") as server, opened(file) as limiter:
        assert statuses(server.port, 4) == [200] * 4  # five of ten are taken
        file.write_text(good.replace("10/h", "10/h burst 8"))
        wait_until(lambda: limiter["per_ip"].rates[0].burst == 8)
        assert statuses(server.port, 4) == [200] * 3 + [429]  # the debt is kept
        file.write_text(good.replace("10/h", "10/hh"))
        wait_until(lambda: limiter.hosts.refusal)
        assert "limits.per_ip.rate" in limiter.hosts.refusal
        assert limiter.hosts.refusal in server.log.read_text()
        assert statuses(server.port, 1) == [429]
        # Another limit, by another key, which each worker has to read from the file itself.
        file.write_text(
            good.replace("10/h", "100/h")
            + '[limits.per_agent]\nrate = "2/h"\nkey = "header:Host"\n'
        )
        wait_until(lambda: "per_agent" in limiter and not limiter.hosts.refusal)
        assert statuses(server.port, 12).count(200) == 2
        # And without it again.
        file.write_text(good.replace("10/h", "100/h"))
        wait_until(lambda: "per_agent" not in limiter)
        assert statuses(server.port, 12) == [200] * 12
        assert server.log.read_text().count("Traceback") == 0
