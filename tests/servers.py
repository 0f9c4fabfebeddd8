"""gunicorn servers under test: one that runs, its workers, and waiting for facts about them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.clients import ask
from demo.server import Server
from shmlimit.process import process_start_ticks

PATIENCE_S = 30.0  # for what has to happen soon, on a machine that may be busy
HOOKS = ("-c", "python:gunicorn_hooks")


def config_file(directory: Path, segment_name: str, rate: str, patch: pytest.MonkeyPatch) -> Path:
    """shmlimit.toml where the servers run, with one limit, and no other configuration."""
    patch.delenv("SHMLIMIT_CONFIG", raising=False)
    patch.delenv("GUNICORN_CMD_ARGS", raising=False)
    path = directory / "shmlimit.toml"
    path.write_text(
        f'[table]\nname = "{segment_name}"\nkeys = "10k"\n'
        f'[limits.per_ip]\nrate = "{rate}"\nkey = "ip"\n'
    )
    return path


def wait_until(fact: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline_s, f"{fact} is not true after {PATIENCE_S} s"
        time.sleep(0.02)


@contextmanager
def running(
    file: Path, *arguments: str, app: str = "demo.app:app", upgradable: bool = False
) -> Iterator[Server]:
    """A server that has answered once, so that a worker is up."""
    with Server(file.parent, *arguments, app, upgradable=upgradable) as server:
        try:
            if upgradable:
                wait_until(lambda: "Listening at" in server.log.read_text())
            assert ask(server.port).status == 200
            yield server
        except BaseException:
            print(server.log.read_text())
            raise


def workers_of(master: int) -> set[int]:
    """The pids of a master's live children, its agent not among them."""
    return {pid for pid, command in children_of(master).items() if not is_agent(command)}


def children_of(parent: int) -> dict[int, str]:
    """The live ones, each with its command line."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and process_start_ticks(int(entry)) is not None:
            try:
                line = Path(f"/proc/{entry}/stat").read_text()
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if int(line[line.rindex(")") + 2 :].split()[1]) == parent:
                found[int(entry)] = command.replace(b"\0", b" ").decode()
    return found


def is_agent(command: str) -> bool:
    """Whether a command line is an agent's, just started or with its title."""
    return "shmlimit.agent" in command or command.startswith("shmlimit: agent")


def statuses(port: int, requests: int) -> list[int]:
    return [ask(port).status for _ in range(requests)]


def ended(pid: int) -> bool:
    return process_start_ticks(pid) is None


def pid_in(file: Path) -> int:
    """The pid in a pid file, once it is there."""
    wait_until(lambda: file.exists() and file.read_text().strip())
    return int(file.read_text())


def reload(master: int, log: Path, workers: int, told: str = "shmlimit: reloaded") -> None:
    """A reload, to its end: the master has logged that, and has none but so many new workers."""
    wait_until(lambda: len(workers_of(master)) == workers)
    before, lines = workers_of(master), log.read_text().count(told)
    os.kill(master, signal.SIGHUP)
    wait_until(lambda: log.read_text().count(told) == lines + 1)
    wait_until(lambda: len(workers_of(master)) == workers and not before & workers_of(master))
