"""The command that shows the count of hosts and pins it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from shmlimit._core import Table
from shmlimit.commands.answer import FINE, Answer
from shmlimit.commands.choice import add_choice
from shmlimit.errors import ConfigError
from shmlimit.hosts.source import COUNT_ACCEPTED, COUNT_MAX
from shmlimit.hosts_facts import hosts_facts, hosts_rows
from shmlimit.publication import thin_shares
from shmlimit.rate import shown
from shmlimit.segment_change import changing
from shmlimit.segment_choice import chosen
from shmlimit.segment_facts import columns
from shmlimit.segment_view import viewed


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "how many hosts share the limits, and who says so; `set N` pins it, `auto` lifts that"
    sub = commands.add_parser("hosts", help=text, description=text)
    sub.set_defaults(command=_hosts)
    sub.add_argument("action", nargs="?", choices=("show", "set", "auto"), default="show")
    sub.add_argument("count", nargs="?", metavar="N", help="hosts, with `set`")
    add_choice(sub)
    sub.add_argument("--json", action="store_true", help="for machines, with `show`")


def _hosts(asked: argparse.Namespace) -> Answer:
    if (asked.count is not None) != (asked.action == "set"):
        raise ConfigError("accepted: shmlimit hosts, shmlimit hosts set N, shmlimit hosts auto")
    if asked.json and asked.action != "show":
        raise ConfigError("--json: only with `shmlimit hosts`, which shows")
    count = None if asked.count is None else _count(asked.count)
    name, owner = chosen(asked.table, asked.owner)
    if asked.action == "show":
        with viewed(name, owner) as view:
            facts = hosts_facts(view)
        lines = [json.dumps(facts, indent=2)] if asked.json else columns(hosts_rows(facts))
        return Answer(FINE, lines)
    with changing(name, owner) as segment:
        return Answer(FINE, list(_pinned(segment.table, count)))


def _count(text: str) -> int:
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(COUNT_MAX))
    if not (digits and 1 <= int(text) <= COUNT_MAX):
        raise ConfigError(f"hosts: {shown(text)} is not accepted; accepted: {COUNT_ACCEPTED}")
    return int(text)


def _pinned(table: Table, count: int | None) -> Iterator[str]:
    before = table.hosts.state()
    table.hosts.pin(count)
    now = table.hosts.state()
    whose = f"table {table.header.name}"
    if count is None and before.pinned is None:
        yield f"{whose}: no count was pinned; limits are divided by {now.in_force}"
        return
    why = "until `shmlimit hosts auto`" if count else f"as {now.source or 'code'} says"
    yield f"{whose}: limits are divided by {now.in_force} now, {why}; by {before.in_force} before"
    yield from thin_shares(table)
