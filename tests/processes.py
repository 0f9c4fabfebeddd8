"""Forked processes of a test: they do something, say so, and wait to be ended."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def forked(work: Callable[[], object], *, ready: bool = True) -> Iterator[int]:
    """The pid of a process that has done that work, and keeps what it returned, until the end of
    the block or its own. With ready=False it is not waited for."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _kept = work()
            os.write(write, b"1")
            while True:
                signal.pause()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(write)
    try:
        assert not ready or os.read(read, 1), "the work failed"
        yield pid
    finally:
        os.close(read)
        ended_by(pid, signal.SIGKILL)


def ended_by(pid: int, number: int) -> None:
    """Sends the signal and waits for the end; nothing if it has been seen already."""
    try:
        os.kill(pid, number)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
