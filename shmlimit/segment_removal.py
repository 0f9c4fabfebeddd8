"""Removing a segment by hand: one that nobody uses, and what dead creators left of it."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from typing import NamedTuple

from shmlimit.errors import NotRegularFile, SegmentError
from shmlimit.lock import EXCLUSIVE, USERS_BYTE, opened, try_lock
from shmlimit.segment_creation import remove_leftovers
from shmlimit.segment_file import not_found
from shmlimit.segment_name import DIRECTORY, segment_name
from shmlimit.segment_usage import Usage, mapped_files, usage_of


class Removal(NamedTuple):
    """The paths that were removed, and who used the segment all the same."""

    paths: list[str]
    usage: Usage


def remove(name: str, owner: int, *, force: bool = False) -> Removal:
    """Removes the segment of that name, whatever bears it, and its unfinished files.

    Raises SegmentNotFound when there is nothing, and SegmentError when somebody uses it, unless
    forced; who uses it then goes on with the old table, and who opens the name makes a new one.
    """
    posix_name = segment_name(name, owner)
    path = DIRECTORY + posix_name
    removed: list[str] = []
    usage = Usage(False, [])
    try:
        if os.path.lexists(path):
            usage = _remove_file(path, force)
            removed.append(path)
        removed += remove_leftovers(posix_name)
    except FileNotFoundError:
        pass  # the directory is missing, or its last user was faster
    except OSError as error:
        if isinstance(error, SegmentError):
            raise
        raise SegmentError(
            f"{path} cannot be removed: {error.strerror}; run as its owner or as root"
        ) from None
    if not removed:
        raise not_found(path)
    return Removal(removed, usage)


def _remove_file(path: str, force: bool) -> Usage:
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        raise NotRegularFile(f"{path} is a directory, which no shmlimit made; rmdir it")
    usage = usage_of(path, mapped_files()) or Usage(False, [])
    if usage.in_use and not force:
        raise _in_use(path, usage)
    with ExitStack() as stack:
        # As a last user does it: while the lock is held, nobody comes in any more.
        if stat.S_ISREG(mode) and not _locked(stack, path, force) and not force:
            raise _in_use(path, usage)
        os.unlink(path)
    return usage


def _in_use(path: str, usage: Usage) -> SegmentError:
    return SegmentError(
        f"segment {path} is {Usage(True, usage.pids)}: stop that first; --force removes it all the "
        f"same, and who uses it goes on with a table that nobody else finds"
    )


def _locked(stack: ExitStack, path: str, force: bool) -> bool:
    """Takes the users' lock, if nobody has it, and keeps it as long as the stack."""
    try:
        descriptor = stack.enter_context(opened(path))
    except PermissionError:
        if force:
            return False
        raise SegmentError(
            f"segment {path} may not be opened to see who uses it: run as its owner or as root"
        ) from None
    locked = try_lock(descriptor, USERS_BYTE, EXCLUSIVE)
    if not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
        raise SegmentError(f"segment {path} was replaced meanwhile; try again")
    return locked
