"""The command that is an agent, for servers that do not start one: see docs/servers.md."""

from __future__ import annotations

import argparse
import logging
import os

from shmlimit.commands.answer import BAD, Answer
from shmlimit.commands.owner import add_owner
from shmlimit.config import ENVIRONMENT_VARIABLE

_LEVELS = ("debug", "info", "warning", "error", "critical")


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = (
        "read the source of the host count and watch shmlimit.toml, until SIGTERM or Ctrl-C; logs "
        "to standard error"
    )
    sub = commands.add_parser("agent", help=text, description=text)
    sub.set_defaults(command=_agent)
    where = f"(default: ${ENVIRONMENT_VARIABLE}, or here)"
    sub.add_argument("--config", metavar="PATH", help=f"shmlimit.toml {where}")
    sub.add_argument("--with-parent", action="store_true", help="end when the parent process ends")
    sub.add_argument("--log-level", choices=_LEVELS, default="info")
    add_owner(sub)


def _agent(asked: argparse.Namespace) -> Answer:
    """It is a user of the table, which it makes when there is none: so it may be started before the
    server, and the table outlives workers that all end at once."""
    # what other commands need not wait for
    from shmlimit.agent import agent_log
    from shmlimit.agent.life import Agent
    from shmlimit.agent.spec import ProcessId
    from shmlimit.limiter import Limiter
    from shmlimit.segment_opening import borrow

    parent = ProcessId.of(os.getppid()) if asked.with_parent else None
    agent_log.install(None, asked.log_level)
    limiter = Limiter.from_config(asked.config, owner=asked.owner)
    assert limiter.config.path is not None, "from_config has it from a file"
    try:
        if asked.with_parent and parent is None:
            return Answer(BAD, (), "the parent process has ended, or /proc does not show it")
        with limiter.segment_descriptor() as descriptor:
            segment = borrow(os.dup(descriptor), limiter.name, limiter.owner)
        return Answer(Agent(segment, limiter.config.path, parent, None).run())
    finally:
        logging.disable()  # of what threads notice that are in the middle of something
        limiter.close()
