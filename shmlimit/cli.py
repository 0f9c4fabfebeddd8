"""The command line: what segments there are, what is in one, whether it is sound, and removing it.

Exit codes: 0 fine; 1 what was asked about is bad, missing or in use; 2 not called as it should be.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

from shmlimit.errors import ConfigError, SegmentError, TableDamaged
from shmlimit.segment_facts import columns, facts_of, facts_text, printable, size_text
from shmlimit.segment_listing import Listed, listed
from shmlimit.segment_name import UID_NONE
from shmlimit.segment_removal import remove
from shmlimit.segment_usage import mapped_files, usage_of
from shmlimit.segment_view import viewed

FINE, BAD, USAGE, INTERRUPTED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    """Whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; argparse's SystemExit passes."""
    asked = _parser().parse_args(arguments)
    try:
        code, lines = asked.command(asked)
        return _written(lines, code)
    except ConfigError as error:
        return _complained(error, USAGE)
    except SegmentError as error:
        return _complained(error, BAD)
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="shmlimit", description="Looks after the segments of rate limits.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    told = {
        "list": (_list, "every segment: size, limits, who uses it, or why it is refused"),
        "inspect": (_inspect, "what is in a segment: limits, counters, workers, slots"),
        "check-segment": (_check, "walk a segment and assert its structure"),
        "remove": (_remove, "remove a segment that nobody uses, and what dead creators left"),
    }
    for name, (command, text) in told.items():
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        if name != "list":
            sub.add_argument("name", metavar="NAME", help="the limiter's name, as in [table]")
        sub.add_argument(
            "--owner", type=_uid, metavar="UID", help="of that user's segments (default: one's own)"
        )
        if name in ("list", "inspect"):
            sub.add_argument("--json", action="store_true", help="for machines")
        if name == "remove":
            sub.add_argument("--force", action="store_true", help="even while it is in use")
    return parser


def _uid(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= UID_NONE:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no user's number; accepted is what `id -u NAME` prints"
        )
    return int(text)


Answer = tuple[int, Iterable[str]]


def _list(asked: argparse.Namespace) -> Answer:
    uid = os.geteuid()
    owner = asked.owner if asked.owner is not None else uid or None  # root sees everybody's
    found = listed(owner)
    if asked.json:
        return FINE, [json.dumps([each.as_json() for each in found], indent=2)]
    head = ("NAME", "OWNER", "SIZE", "KEYS", "LIMITS", "STATE")
    return FINE, columns([head, *map(_listed_row, found)])


def _listed_row(each: Listed) -> Sequence[object]:
    limits = "-" if each.limits is None else len(each.limits)
    keys = "-" if each.keys is None else each.keys
    size = size_text(each.size_bytes)
    return each.name, _user(each.owner), size, keys, limits, each.state


def _inspect(asked: argparse.Namespace) -> Answer:
    owner = _owner(asked)
    with viewed(asked.name, owner) as view:
        usage = usage_of(view.path, mapped_files())
        facts = facts_of(view, usage)
    sound = facts["damage"] is None and not any(told["damage"] for told in facts["limits"].values())
    code = FINE if sound else BAD
    if asked.json:
        return code, [json.dumps(facts, indent=2)]
    return code, facts_text(facts, usage, _user(owner))


def _check(asked: argparse.Namespace) -> Answer:
    with viewed(asked.name, _owner(asked)) as view:
        try:
            report = view.table.check()
        except TableDamaged as error:
            _complained(
                f"segment {view.path} is damaged: stop the servers that use it, then remove it",
                BAD,
            )
            return BAD, str(error).splitlines()
        return FINE, columns([(f"{name}:", value) for name, value in report._asdict().items()])


def _remove(asked: argparse.Namespace) -> Answer:
    paths, usage = remove(asked.name, _owner(asked), force=asked.force)
    lines = [f"removed {path}" for path in paths]
    if usage.in_use:
        lines.append(f"it was {usage}: restart those, or they go on with a table of their own")
    return FINE, lines


def _owner(asked: argparse.Namespace) -> int:
    owner: int | None = asked.owner
    return os.geteuid() if owner is None else owner


def _user(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _written(lines: Iterable[str], code: int) -> int:
    """Prints. A reader that has seen enough (head) changes nothing in the answer."""
    if sys.stdout is None:  # the caller closed it
        return code
    try:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
        return code
    except OSError as error:
        # What is still buffered would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return code
        return _complained(
            f"the answer cannot be written: {error.strerror}; write it elsewhere", BAD
        )


def _complained(what: object, code: int) -> int:
    text = " ".join(str(what).split())
    with suppress(OSError):
        if sys.stderr is not None:  # print would take standard output instead
            print(f"shmlimit: {printable(text)}", file=sys.stderr)
    return code
