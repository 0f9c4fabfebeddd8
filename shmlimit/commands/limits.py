"""The command that changes a limit while it runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from shmlimit._core import Table
from shmlimit.commands.answer import FINE, Answer
from shmlimit.commands.choice import add_choice
from shmlimit.config import LimitConfig
from shmlimit.config_refusal import at, did_you_mean
from shmlimit.errors import ConfigError
from shmlimit.publication import numbers_text, share_text, surplus_text, thin_shares
from shmlimit.rate import Rate, shown
from shmlimit.segment_change import changing
from shmlimit.segment_choice import chosen

_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {  # of LimitConfig
    "rate": ("rates", Rate.parse_several),
    "mode": ("mode", str),
    "when_full": ("when_full", str),
    "scope": ("scope", str),
}


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = (
        "change a limit in all processes of this host, at once and with its buckets kept, until "
        "the configuration is loaded again"
    )
    sub = commands.add_parser("set", help=text, description=text)
    sub.set_defaults(command=_set)
    sub.add_argument("limit", metavar="LIMIT", help="its name, as in [limits.LIMIT]")
    sub.add_argument(
        "changes", metavar="FIELD=VALUE", nargs="+", help=f"of {', '.join(_FIELDS)}: rate=200/s"
    )
    add_choice(sub)


def _set(asked: argparse.Namespace) -> Answer:
    fields = _fields(asked.changes)
    with changing(*chosen(asked.table, asked.owner)) as segment:
        return Answer(FINE, list(_changed(segment.table, asked.limit, fields)))


def _fields(changes: Sequence[str]) -> dict[str, Any]:
    """By the fields of LimitConfig. Raises ConfigError."""
    found: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or key not in _FIELDS:
            hint = did_you_mean(key, list(_FIELDS))
            raise ConfigError(
                f"{shown(change)} is not accepted{hint}; accepted: FIELD=VALUE with a field of "
                f"{', '.join(_FIELDS)}, such as rate=200/s"
            )
        field, parsed = _FIELDS[key]
        if field in found:
            raise ConfigError(f"{key}: is there twice; accepted: each field once")
        with at(f"{key}: " if key == "rate" else ""):
            found[field] = parsed(value)
    return found


def _changed(table: Table, name: str, fields: dict[str, Any]) -> Iterator[str]:
    limit = table.limit(name)
    before, rates = numbers_text(limit), limit.rates
    running = {"rates": rates, "mode": limit.mode, "when_full": limit.when_full}
    asked = LimitConfig(name, **(running | {"scope": limit.scope} | fields))
    table.publish(
        name, asked.rates, asked.mode, asked.when_full,
        scope=asked.scope, replace="by hand", by_hand=True,
    )  # fmt: skip
    hosts = table.hosts.state().in_force
    surplus = surplus_text(rates, asked.rates)
    yield f"limit {name} of table {table.header.name} ran at {before}"
    yield f"and runs at {numbers_text(limit)} now, in all processes of this host{surplus}"
    if hosts > 1 and limit.scope == "global":
        yield f"of the {hosts} hosts, this one was told: it enforces {share_text(limit, hosts)}"
    yield "until the configuration is loaded again: at HUP, or when shmlimit.toml changes"
    yield from thin_shares(table, [name])
