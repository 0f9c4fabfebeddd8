"""Starting an agent: a program of its own, executed and not forked.

A thread in a master that forks would leave locks held in its children, and a plain fork would have
the server's sockets and signal handlers. The agent inherits one descriptor, that of the segment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field

from shmlimit.agent.spec import AgentSpec, ProcessId
from shmlimit.errors import AgentNotStarted
from shmlimit.limiter import Limiter

# What a server tells its children, and no other program must believe.
_OF_SERVERS = (
    "GUNICORN_FD", "GUNICORN_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET",
    "WATCHDOG_PID", "WATCHDOG_USEC", "SERVER_SOFTWARE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AgentUser:
    """Whom an agent runs as; None is whoever starts it."""

    uid: int | None = None
    gid: int | None = None
    groups: list[int] | None = field(default=None)


def start_agent(limiter: Limiter | None = None) -> int:
    """Starts the agent of a limiter's table: it reads the source of the host count and watches
    shmlimit.toml, until this process ends. Returns its pid.

    To be called once a host, by a process that lives as long as the server: the workers' parent,
    not each worker. (Several agents do no harm: one works and the others wait.) gunicorn_hooks does
    it; under uWSGI, systemd or a supervisor run `shmlimit agent` instead.

    - limiter: None is that of shmlimit.toml, as of Limiter.from_config()

    Raises AgentNotStarted, and what from_config raises.
    """
    return start(Limiter.from_config() if limiter is None else limiter)


def start(
    limiter: Limiter,
    user: AgentUser | None = None,
    log_file: str | None = None,
    log_level: str = "info",
) -> int:
    """The same, for a server that has its log and its workers' user to pass on."""
    path = limiter.config.path
    if path is None:
        raise AgentNotStarted(
            f"limiter {limiter.name!r} was made in code, so there is no file that says where the "
            f"count of hosts comes from: write a shmlimit.toml, and use Limiter.from_config()"
        )
    master = ProcessId.of(os.getpid())
    if master is None:
        raise AgentNotStarted("/proc does not show this process: mount it, for agents to watch it")
    with limiter.segment_descriptor() as descriptor:
        spec = AgentSpec(
            descriptor,
            limiter.name,
            limiter.owner,
            str(path),
            master,
            log_file=log_file,
            log_level=log_level,
        )
        process = spawn(spec, user or AgentUser())
    # It is reaped by whatever reaps the children of this process, or never: not by Popen, which
    # would otherwise complain when it is collected.
    process.returncode = 0
    return process.pid


def spawn(spec: AgentSpec, user: AgentUser) -> subprocess.Popen[bytes]:
    """Executes an agent of that spec. Raises AgentNotStarted."""
    if "uwsgi" in sys.modules or not sys.executable:
        raise AgentNotStarted(
            f"there is no Python to start it with (sys.executable is {sys.executable!r}): let the "
            f"server or its supervisor run `shmlimit agent`; for uWSGI: attach-daemon = shmlimit "
            f"agent --with-parent"
        )
    environment = {name: text for name, text in os.environ.items() if name not in _OF_SERVERS}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in sys.path)
    command = [sys.executable, "-P", "-m", "shmlimit.agent.life", spec.as_text()]
    try:
        return subprocess.Popen(
            command,
            env=environment,
            pass_fds=[spec.descriptor],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            process_group=0,  # a terminal's Ctrl-C is not for it
            user=user.uid,
            group=user.gid,
            extra_groups=user.groups,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise AgentNotStarted(
            f"{sys.executable} cannot be executed ({error}): the count of hosts stays as it is; "
            f"run `shmlimit agent` beside the server"
        ) from error
