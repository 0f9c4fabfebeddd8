"""The agent of a gunicorn server: as its workers' user, with its error log."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from shmlimit.agent.start import AgentUser, start
from shmlimit.errors import AgentNotStarted, SegmentError
from shmlimit.limiter import Limiter

if TYPE_CHECKING:
    from gunicorn.arbiter import Arbiter
    from gunicorn.config import Config


def start_agent(server: Arbiter, limiter: Limiter) -> None:
    """A server without an agent is better than none: a failure is logged."""
    try:
        start(limiter, _user(server.cfg), _log_file(server.cfg), server.cfg.loglevel)
    except (AgentNotStarted, SegmentError) as error:
        server.log.error("shmlimit: the agent is not started: %s", error)


def _user(config: Config) -> AgentUser:
    """Whom gunicorn makes of its workers, without the groups of root, which it leaves them."""
    if (config.uid, config.gid) == (os.geteuid(), os.getegid()):
        return AgentUser()
    groups = []
    if config.initgroups:
        groups = os.getgrouplist(pwd.getpwuid(config.uid).pw_name, config.gid)
    return AgentUser(config.uid, config.gid, groups)


def _log_file(config: Config) -> str | None:
    """None is standard error, which gunicorn's `-` is too."""
    return None if config.errorlog in (None, "-") else os.path.abspath(config.errorlog)
