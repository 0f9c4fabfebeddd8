"""Whose segments a command is about."""

from __future__ import annotations

import argparse
import os
import pwd
from contextlib import suppress

from shmlimit.segment_name import UID_NONE


def add_owner(parser: argparse.ArgumentParser, default: str = "one's own") -> None:
    parser.add_argument(
        "--owner", type=_uid, metavar="UID", help=f"of that user's segments (default: {default})"
    )


def owner_of(asked: argparse.Namespace) -> int:
    owner: int | None = asked.owner
    return os.geteuid() if owner is None else owner


def user_text(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)


def _uid(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= UID_NONE:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no user's number; accepted is what `id -u NAME` prints"
        )
    return int(text)
