"""What an operator changes beside a real server: limits, the count of hosts, and its agent."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.clients import ask
from shmlimit import Limiter
from tests.agents import agents_of, beats, working
from tests.servers import HOOKS, config_file, ended, reload, running, statuses, wait_until

COMMAND = (sys.executable, "-m", "shmlimit")
APPLIES_S = 1.0  # within, to all workers


@pytest.fixture
def file(segment_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return config_file(tmp_path, segment_name, "10/h", monkeypatch)


def shmlimit(file: Path, *arguments: str) -> str:
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=file.parent, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_limit_that_is_set_counts_in_all_workers_until_a_reload(file: Path) -> None:
    with running(file, *HOOKS, "--workers", "3") as server:
        assert statuses(server.port, 4) == [200] * 4  # five of ten are taken
        shmlimit(file, "set", "per_ip", "rate=10/h burst 8")
        set_at_s = time.monotonic()
        assert statuses(server.port, 9) == [200] * 3 + [429] * 6  # the debt is kept
        assert time.monotonic() - set_at_s < APPLIES_S, "or the count above proves less"
        assert "by hand" in shmlimit(file, "inspect", config_name(file))
        shmlimit(file, "set", "per_ip", "mode=shadow")
        assert statuses(server.port, 6) == [200] * 6
        reload(server.process.pid, server.log, 3)
        assert "by hand" not in shmlimit(file, "inspect", config_name(file))
        assert statuses(server.port, 6) == [200] * 2 + [429] * 4  # as configured, ten in all
        assert "Traceback" not in server.log.read_text()


def test_a_count_that_is_pinned_survives_a_reload(file: Path) -> None:
    hosts = file.with_name("hosts")
    hosts.write_text("2")
    with file.open("a") as text:
        text.write(f'[hosts]\nsource = "file:{hosts}"\nfallback = 2\nsettle = "100ms"\n')
    with running(file, *HOOKS, "--workers", "2") as server, Limiter.from_config(file) as limiter:
        wait_until(lambda: beats(limiter))
        assert "divided by 5 now" in shmlimit(file, "hosts", "set", "5")
        assert statuses(server.port, 4) == [200, 429, 429, 429], "one was asked before"
        reload(server.process.pid, server.log, 2)
        hosts.write_text("1")
        wait_until(lambda: limiter.hosts.counted == 1)
        assert shmlimit(file, "hosts").startswith("hosts   5, pinned; without that 1")
        assert f"divided by 1 now, as file:{hosts} says" in shmlimit(file, "hosts", "auto")
        assert ask(server.port).status == 200


def config_name(file: Path) -> str:
    return file.read_text().split('"')[1]


# The agent as a command.


@contextmanager
def agent(file: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with file.with_name("agent.log").open("ab") as log:
        process = subprocess.Popen([*COMMAND, "agent", *arguments], cwd=file.parent, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def log_of(file: Path) -> str:
    return file.with_name("agent.log").read_text()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_agent_in_the_foreground_works_until_it_is_told_to_end(
    file: Path, segment: Path, segment_name: str, end: signal.Signals
) -> None:
    """It makes the table, so that it may be there before the server, and takes it along."""
    hosts = file.with_name("hosts")
    hosts.write_text("3")
    with file.open("a") as text:
        text.write(f'[hosts]\nsource = "file:{hosts}"\nfallback = 8\nsettle = "100ms"\n')
    with agent(file) as process:
        wait_until(lambda: working(segment_name) == [process.pid])
        with Limiter.from_config(file) as limiter:
            wait_until(lambda: limiter.hosts.in_force == 3 and beats(limiter))
            assert f"agent   {process.pid} works" in shmlimit(file, "hosts")
            hosts.write_text("7")
            wait_until(lambda: limiter.hosts.in_force == 7)
            file.write_text(file.read_text().replace("10/h", "20/h"))
            wait_until(lambda: limiter["per_ip"].rates[0].count == 20)
        assert segment.exists()
        process.send_signal(end)
        assert process.wait(30) == 0
        assert not segment.exists()
    assert f"agent: {process.pid} leaves" in log_of(file)
    assert "Traceback" not in log_of(file)


def test_an_agent_in_the_foreground_waits_beside_those_of_a_server(
    file: Path, segment: Path, segment_name: str
) -> None:
    with running(file, *HOOKS, "--workers", "1") as server, agent(file) as process:
        wait_until(lambda: len(agents_of(segment_name)) == 3)
        assert working(segment_name) != [process.pid]
        assert server.stop() == 0
        wait_until(lambda: working(segment_name) == [process.pid])
        assert segment.exists(), "the agent is a user of the table"
        process.terminate()
        assert process.wait(30) == 0
        assert not segment.exists()


@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_an_agent_ends_with_its_parent(
    file: Path, segment: Path, segment_name: str, kill: signal.Signals
) -> None:
    run = f"import subprocess, sys; subprocess.run([*{COMMAND!r}, 'agent', '--with-parent'])"
    parent = subprocess.Popen([sys.executable, "-c", run], cwd=file.parent, stderr=subprocess.PIPE)
    assert parent.stderr is not None
    with parent.stderr:
        wait_until(lambda: working(segment_name))
        (pid,) = working(segment_name)
        parent.send_signal(kill)
        parent.wait()
        ended_at_s = time.monotonic()
        wait_until(lambda: ended(pid))
        assert time.monotonic() - ended_at_s < 2
    assert not segment.exists()


def test_an_agent_whose_segment_was_replaced_ends_to_be_started_again(
    file: Path, segment: Path, segment_name: str
) -> None:
    with agent(file) as process:
        wait_until(lambda: working(segment_name))
        file.write_text(file.read_text().replace("10k", "20k"))
        with running(file, *HOOKS, "--workers", "1"):  # a master, who may make it anew
            assert process.wait(30) == 1
            assert "has lost its name, or the name is another segment's: start this" in log_of(file)
            assert segment.exists()
            with agent(file) as another:
                wait_until(lambda: another.pid in agents_of(segment_name))
                another.terminate()
                assert another.wait(30) == 0


def test_an_agent_that_cannot_start_says_why(file: Path, segment: Path) -> None:
    for arguments, content, code, told in (
        (("--config", "missing.toml"), None, 2, "missing.toml: there is no such file"),
        ((), "[table]\nname = 7\n", 2, "table.name: 7 is not accepted"),
        (("--log-level", "loud"), None, 2, "invalid choice: 'loud'"),
    ):
        if content is not None:
            file.write_text(content)
        with agent(file, *arguments) as process:
            assert process.wait(30) == code
        assert told in log_of(file).splitlines()[-1]
    assert not segment.exists()


def test_other_commands_do_not_load_what_only_an_agent_needs() -> None:
    code = "import sys, shmlimit.cli; print(*{'watchdog', 'dns', 'setproctitle'} & {*sys.modules})"
    assert subprocess.check_output([sys.executable, "-c", code]) == b"\n"
