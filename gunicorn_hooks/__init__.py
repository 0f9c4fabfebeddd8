"""gunicorn's hooks: the master makes the table of shmlimit.toml before it forks, starts the agent,
reads the file again at a reload (HUP), and removes the table when it has stopped.

Either `gunicorn -c python:gunicorn_hooks app:app`, or in a gunicorn.conf.py of one's own:

    from gunicorn_hooks import *

Hooks of one's own by the same names run too: ours first, in on_exit ours last. That is arranged by
nworkers_changed, the first hook that gunicorn calls; one's own has to call it:

    import gunicorn_hooks

    def nworkers_changed(server, new_value, old_value):
        gunicorn_hooks.nworkers_changed(server, new_value, old_value)
        ...

Workers inherit the table, so a worker may be killed, recycled, added or removed at any time. It is
gone when the master has stopped; after a SIGKILL of the master, when the last worker has noticed.
A table that nobody was left to remove is adopted by the next start, with its buckets.

A server whose table cannot be made does not start: it exits with status 1. A reload that fails
changes nothing and is logged.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gunicorn_hooks.agent import start_agent
from gunicorn_hooks.composition import Composition, guarded
from gunicorn_hooks.server_log import ServerLog
from shmlimit.config import ENVIRONMENT_VARIABLE, Config, LimitConfig
from shmlimit.errors import ShmlimitError
from shmlimit.limiter import Limiter
from shmlimit.segment_usage import mapped_files, usage_of

if TYPE_CHECKING:
    from gunicorn.arbiter import Arbiter

__all__ = ["nworkers_changed", "on_exit", "on_reload", "on_starting", "when_ready"]

KILLED_WORKERS_WAIT_S = 5.0
DIRTY_WORKERS_WAIT_S = 5.0
_limiter: Limiter | None = None  # the master's, inherited by the workers


@guarded("start the server again if shmlimit.toml is not read at a reload")
def nworkers_changed(server: Arbiter, new_value: int, old_value: int | None) -> None:
    """The first hook of a start and of a reload. With preload_app the application is imported
    between it and on_starting. Later, threads of gunicorn call it too."""
    _composition.complete(server.cfg)
    if old_value is None and server.cfg.preload_app:
        _open_or_refuse(server)


@guarded("start the server again")
def on_starting(server: Arbiter) -> None:
    _complete_late(server)
    _open_or_refuse(server)


@guarded("run `shmlimit agent` beside the server, to have the count of hosts followed")
def when_ready(server: Arbiter) -> None:
    """The workers are about to be forked. The agent is no child that they could inherit from."""
    if _limiter is not None:
        start_agent(server, _limiter)


@guarded("start the server again to have shmlimit.toml read")
def on_reload(server: Arbiter) -> None:
    _complete_late(server)
    try:
        if _limiter is None:  # these hooks came with this reload
            _open(server)
        else:
            _limiter.reload(Config.find(_file(server)))
            server.log.info("shmlimit: reloaded: %s", _limits())
    except (ShmlimitError, OSError) as error:
        server.log.error(
            "shmlimit: the limits stay as they are; correct this and send HUP again: %s", error
        )
    if _limiter is not None and not _limiter.has_agent:
        start_agent(server, _limiter)


@guarded("`shmlimit list` shows whether a table was left behind; the next start takes it over")
def on_exit(server: Arbiter) -> None:
    """The workers have been told to stop, and those that did not were killed."""
    if _limiter is not None:
        try:
            _wait_for(server.WORKERS)
            if getattr(server.cfg, "dirty_apps", None) and not server.reexec_pid:
                _wait_for_other_users(_limiter.path)
        finally:
            _limiter.close()


_composition = Composition(
    (nworkers_changed, on_starting, when_ready, on_reload, on_exit), last=["on_exit"]
)


def _complete_late(server: Arbiter) -> None:
    """For when nworkers_changed has not done it, because the configuration has another one."""
    if "nworkers_changed" in _composition.complete(server.cfg):
        server.log.error(
            "shmlimit: gunicorn's configuration lacks the nworkers_changed of gunicorn_hooks, or "
            "has one that hides it, so limits may not follow reloads: write `from gunicorn_hooks "
            "import *`, and call gunicorn_hooks.nworkers_changed(server, new_value, old_value) in "
            "yours"
        )


def _open_or_refuse(server: Arbiter) -> None:
    """Ends the server rather than to let it run without its limits."""
    if _limiter is not None:
        return
    try:
        _open(server)
    except Exception as error:
        known = isinstance(error, ShmlimitError | OSError)
        server.log.error(
            "shmlimit: the server does not start without its limits: %s",
            error, exc_info=None if known else error,
        )  # fmt: skip
        sys.exit(1)


def _open(server: Arbiter) -> None:
    """The limiter, for the user that workers run as, with counters for twice as many workers as
    there are now; more would share counters."""
    global _limiter
    ServerLog.install()
    workers = max(64, 2 * server.cfg.workers)
    _limiter = Limiter.from_config(
        _file(server),
        owner=server.cfg.uid,
        workers=workers,
        role="upgrade" if _predecessor_runs() else "master",
    )
    size_mib = _limiter.size_bytes / 2**20
    server.log.info("shmlimit: %s (%.1f MiB): %s", _limiter.path, size_mib, _limits())


def _predecessor_runs() -> bool:
    """Whether this master was started by another one, at USR2. With preload_app the arbiter does
    not know yet."""
    return os.environ.get("GUNICORN_PID") == str(os.getppid())


def _file(server: Arbiter) -> str | None:
    return server.cfg.env.get(ENVIRONMENT_VARIABLE) or None  # raw_env is in os.environ only later


def _limits() -> str:
    return "; ".join(map(_told, _limiter.config.limits)) if _limiter is not None else ""


def _told(limit: LimitConfig) -> str:
    by = f"by {limit.key}" if limit.key else "only in code, it has no key"
    rates = "; ".join(map(str, limit.rates))
    return f"{limit.name} {rates} {by}" + ("" if limit.mode == "enforce" else f", {limit.mode}")


def _wait_for_other_users(path: Path) -> None:
    """Waits for the end of dirty workers. They are no children of the master, and close nothing
    when they end, so that the table would be left behind."""
    deadline_s = time.monotonic() + DIRTY_WORKERS_WAIT_S
    while time.monotonic() < deadline_s:
        usage = usage_of(str(path), mapped_files())
        if usage is None or not set(usage.pids) - {os.getpid()}:
            return
        time.sleep(0.05)


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
