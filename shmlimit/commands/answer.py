"""What a command answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

FINE, BAD, USAGE, INTERRUPTED = 0, 1, 2, 130


class Answer(NamedTuple):
    code: int  # the exit code
    lines: Iterable[str] = ()  # of standard output
    complaint: str = ""  # of standard error
