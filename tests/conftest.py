"""Fixtures for all tests: a segment's name that is theirs alone, and a clock that stands still."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmlimit.lock import EXCLUSIVE, USERS_BYTE, opened, try_lock
from shmlimit.segment_name import DIRECTORY

_numbers = itertools.count()


class Clock:
    """Stands still until a test moves it."""

    def __init__(self, ns: int = 10_000_000_000) -> None:
        self.ns = ns

    def __call__(self) -> int:
        return self.ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def segment_name() -> Iterator[str]:
    """A name that no other process, xdist worker or test has.

    Whatever bears it afterwards is removed. A segment that nobody uses by then was leaked, and
    fails the test: who means to leave one (a crash, say) removes it.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    name = f"test-{os.getpid()}-{worker}-{next(_numbers):05}"
    yield name
    leaked = []
    for path in Path(DIRECTORY).glob(f"shmlimit*.{name}*"):
        if not _in_use(path):
            leaked.append(str(path))
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    assert not leaked, f"left behind, and nobody uses them: {leaked}"


@pytest.fixture
def segment(segment_name: str) -> Path:
    """The file of the segment of that name."""
    return Path(f"{DIRECTORY}/shmlimit.{os.geteuid()}.{segment_name}")


def _in_use(path: Path) -> bool:
    """Whether a process has that segment open, this one included."""
    try:
        with opened(str(path)) as descriptor:
            return not try_lock(descriptor, USERS_BYTE, EXCLUSIVE)
    except OSError:  # not a file that a limiter could use
        return False
