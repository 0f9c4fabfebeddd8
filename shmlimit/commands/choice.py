"""Which segment a command is about that changes one: see segment_choice."""

from __future__ import annotations

import argparse

from shmlimit.commands.owner import add_owner


def add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table", metavar="NAME", help="(default: that of shmlimit.toml, or the only one there is)"
    )
    add_owner(parser, "whoever has that table")
