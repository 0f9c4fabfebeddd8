"""Whether a process still lives, also when it may not be looked at."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest

from shmlimit import process
from shmlimit.process import process_lives, process_start_ticks


def started_ticks(pid: int) -> int:
    ticks = process_start_ticks(pid)
    assert ticks is not None
    return ticks


def test_this_process_lives_and_another_of_its_pid_does_not() -> None:
    ticks = started_ticks(os.getpid())
    assert process_lives(os.getpid(), ticks)
    assert not process_lives(os.getpid(), ticks + 1)


def test_a_killed_process_is_gone_also_before_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    ticks = started_ticks(child.pid)
    assert process_lives(child.pid, ticks)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert not process_lives(child.pid, ticks)
    assert process_start_ticks(child.pid) is None
    child.wait()
    assert not process_lives(child.pid, ticks)


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EMFILE, errno.EACCES])
def test_a_process_that_cannot_be_looked_at_counts_as_alive(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOENT: /proc mounted with hidepid. EMFILE: this process has no descriptor left."""

    def refuse(pid: int) -> bytes:
        raise OSError(number, os.strerror(number))

    ticks = started_ticks(os.getpid())
    monkeypatch.setattr(process, "_stat", refuse)
    assert process_lives(os.getpid(), ticks)


def test_a_process_of_another_user_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(pid: int, number: int) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    ticks = started_ticks(os.getpid())
    monkeypatch.setattr(os, "kill", forbid)
    assert process_lives(os.getpid(), ticks)
