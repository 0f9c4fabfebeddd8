"""The commands that look at segments and remove them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence

from shmlimit.commands.answer import BAD, FINE, Answer
from shmlimit.commands.owner import add_owner, owner_of, user_text
from shmlimit.errors import TableDamaged
from shmlimit.segment_facts import columns, facts_of, facts_text, size_text
from shmlimit.segment_listing import Listed, listed
from shmlimit.segment_removal import remove
from shmlimit.segment_usage import mapped_files, usage_of
from shmlimit.segment_view import viewed


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told: dict[str, tuple[Callable[[argparse.Namespace], Answer], str]] = {
        "list": (_list, "every segment: size, limits, who uses it, or why it is refused"),
        "inspect": (_inspect, "what is in a segment: limits, hosts, counters, workers, slots"),
        "check-segment": (_check, "walk a segment and assert its structure"),
        "remove": (_remove, "remove a segment that nobody uses, and what dead creators left"),
    }
    for name, (command, text) in told.items():
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        if name != "list":
            sub.add_argument("name", metavar="NAME", help="the limiter's name, as in [table]")
        add_owner(sub)
        if name in ("list", "inspect"):
            sub.add_argument("--json", action="store_true", help="for machines")
        if name == "remove":
            sub.add_argument("--force", action="store_true", help="even while it is in use")


def _list(asked: argparse.Namespace) -> Answer:
    uid = os.geteuid()
    owner = asked.owner if asked.owner is not None else uid or None  # root sees everybody's
    found = listed(owner)
    if asked.json:
        return Answer(FINE, [json.dumps([each.as_json() for each in found], indent=2)])
    head = ("NAME", "OWNER", "SIZE", "KEYS", "LIMITS", "STATE")
    return Answer(FINE, columns([head, *map(_listed_row, found)]))


def _listed_row(each: Listed) -> Sequence[object]:
    limits = "-" if each.limits is None else len(each.limits)
    keys = "-" if each.keys is None else each.keys
    size = size_text(each.size_bytes)
    return each.name, user_text(each.owner), size, keys, limits, each.state


def _inspect(asked: argparse.Namespace) -> Answer:
    owner = owner_of(asked)
    with viewed(asked.name, owner) as view:
        usage = usage_of(view.path, mapped_files())
        facts = facts_of(view, usage)
    sound = facts["damage"] is None and not any(told["damage"] for told in facts["limits"].values())
    code = FINE if sound else BAD
    if asked.json:
        return Answer(code, [json.dumps(facts, indent=2)])
    return Answer(code, facts_text(facts, usage, user_text(owner)))


def _check(asked: argparse.Namespace) -> Answer:
    with viewed(asked.name, owner_of(asked)) as view:
        try:
            report = view.table.check()
        except TableDamaged as error:
            remedy = "stop the servers that use it, then remove it"
            return Answer(BAD, str(error).splitlines(), f"segment {view.path} is damaged: {remedy}")
        return Answer(
            FINE, columns([(f"{name}:", value) for name, value in report._asdict().items()])
        )


def _remove(asked: argparse.Namespace) -> Answer:
    paths, usage = remove(asked.name, owner_of(asked), force=asked.force)
    lines = [f"removed {path}" for path in paths]
    if usage.in_use:
        lines.append(f"it was {usage}: restart those, or they go on with a table of their own")
    return Answer(FINE, lines)
