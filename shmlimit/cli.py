"""The command line: looks at segments, changes what runs in them, and is their agent.

Exit codes: 0 fine; 1 what was asked about is bad, missing or in use; 2 not called as it should be.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

from shmlimit.commands import agent, hosts, limits, segments
from shmlimit.commands.answer import BAD, INTERRUPTED, USAGE, Answer
from shmlimit.errors import ConfigError, ShmlimitError
from shmlimit.segment_facts import printable


class _Parser(argparse.ArgumentParser):
    """Whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; argparse's SystemExit passes."""
    asked = _parser().parse_args(arguments)
    try:
        answer: Answer = asked.command(asked)
        if answer.complaint:
            _complain(answer.complaint)
        return _written(answer.lines, answer.code)
    except ConfigError as error:
        _complain(error)
        return USAGE
    except ShmlimitError as error:
        _complain(error)
        return BAD
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="shmlimit", description="Looks after the segments of rate limits.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for noun in (segments, limits, hosts, agent):
        noun.add_to(commands)
    return parser


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
        _complain(f"the answer cannot be written: {error.strerror}; write it elsewhere")
        return BAD


def _complain(what: object) -> None:
    text = " ".join(str(what).split())
    with suppress(OSError):
        if sys.stderr is not None:  # print would take standard output instead
            print(f"shmlimit: {printable(text)}", file=sys.stderr)
