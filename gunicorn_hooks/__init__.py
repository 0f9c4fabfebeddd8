"""gunicorn's hooks: the master makes the table of shmlimit.toml before it forks, and removes it.

Either `gunicorn -c python:gunicorn_hooks app:app`, or in a gunicorn.conf.py of one's own:

    from gunicorn_hooks import *

A hook of one's own by the same name has to call the one from here:

    import gunicorn_hooks

    def on_starting(server):
        gunicorn_hooks.on_starting(server)
        ...

Workers inherit the table, so a worker may be killed, recycled, added or removed at any time. It is
gone when the master has stopped; after a SIGKILL of the master, when the last worker has noticed.
A table that nobody was left to remove is adopted by the next start, with its buckets.

A server whose table cannot be made does not start: it exits with status 1.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from shmlimit.config import ENVIRONMENT_VARIABLE, LimitConfig
from shmlimit.errors import ShmlimitError
from shmlimit.limiter import Limiter

if TYPE_CHECKING:
    from gunicorn.arbiter import Arbiter

__all__ = ["nworkers_changed", "on_exit", "on_starting"]

KILLED_WORKERS_WAIT_S = 5.0
_limiter: Limiter | None = None  # the master's, inherited by the workers


def nworkers_changed(server: Arbiter, new_value: int, old_value: int | None) -> None:
    """With preload_app the application is imported before on_starting; this hook runs earlier."""
    if old_value is None and server.cfg.preload_app:
        _open(server)


def on_starting(server: Arbiter) -> None:
    if _limiter is None:
        _open(server)


def on_exit(server: Arbiter) -> None:
    """The workers have been told to stop, and those that did not were killed."""
    if _limiter is not None:
        _wait_for(server.WORKERS)
        _limiter.close()


def _open(server: Arbiter) -> None:
    """The limiter, for the user that workers run as, with counters for twice as many workers as
    there are now; more would share counters."""
    global _limiter
    path = server.cfg.env.get(ENVIRONMENT_VARIABLE) or None  # raw_env is not in os.environ yet
    workers = max(64, 2 * server.cfg.workers)
    try:
        _limiter = Limiter.from_config(path, owner=server.cfg.uid, workers=workers)
    except (ShmlimitError, OSError) as error:
        server.log.error("shmlimit: the server does not start without its limits: %s", error)
        sys.exit(1)
    limits = "; ".join(map(_told, _limiter.config.limits))
    size_mib = _limiter.size_bytes / 2**20
    server.log.info("shmlimit: %s (%.1f MiB): %s", _limiter.path, size_mib, limits)


def _told(limit: LimitConfig) -> str:
    by = f"by {limit.key}" if limit.key else "only in code, it has no key"
    return f"{limit.name} {limit.rate} {by}" + (
        "" if limit.mode == "enforce" else f", {limit.mode}"
    )


def _wait_for(pids: Iterable[int]) -> None:
    """Waits for the end of workers that the master has just killed: while one of them still dies,
    it counts as a user of the table, which would then be left behind."""
    deadline_s = time.monotonic() + KILLED_WORKERS_WAIT_S
    for pid in list(pids):
        with suppress(OSError, AttributeError):  # gone already, or no pidfd_open here
            descriptor = os.pidfd_open(pid)
            try:
                ended = select.poll()
                ended.register(descriptor, select.POLLIN)
                ended.poll(max(deadline_s - time.monotonic(), 0) * 1000)
            finally:
                os.close(descriptor)
