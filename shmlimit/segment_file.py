"""A segment's file as somebody opens it who is not going to use it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shmlimit.errors import SegmentError, SegmentNotFound, WrongSize
from shmlimit.refusal import REMOVAL, refuse_file
from shmlimit.segment_name import DIRECTORY

STAT_BLOCK_BYTES = 512  # the unit of st_blocks


@contextmanager
def opened_file(path: str, owner: int, access: int) -> Iterator[int]:
    """A descriptor of the file, refused unless it is that owner's, is regular, private and whole.
    `access` is os.O_RDONLY or os.O_RDWR."""
    found = None
    with suppress(FileNotFoundError, NotADirectoryError):
        found = os.lstat(path)
    if found is None:
        raise not_found(path)
    refuse_file(found, path, owner)
    try:
        # A link or a FIFO may have come since: neither followed nor waited for.
        flags = access | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise SegmentNotFound(f"segment {path} was removed meanwhile") from None
    except OSError as error:
        remedy = "try again" if error.errno == errno.ELOOP else f"run as uid {owner} or as root"
        raise SegmentError(f"segment {path} cannot be opened: {error.strerror}; {remedy}") from None
    try:
        found = os.fstat(descriptor)
        refuse_file(found, path, owner)
        _refuse_part(found, path)
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_part(found: os.stat_result, path: str) -> None:
    """Refuses a file without memory for all of it: to read what was never written would make the
    file grow."""
    if found.st_size == 0:
        raise WrongSize(f"segment {path} is empty; {REMOVAL.format(path=path)}")
    bytes_there = found.st_blocks * STAT_BLOCK_BYTES
    if bytes_there < found.st_size:
        raise WrongSize(
            f"segment {path} has memory for {bytes_there} of its {found.st_size} bytes; "
            f"{REMOVAL.format(path=path)}"
        )


def not_found(path: str) -> SegmentNotFound:
    missing = not os.path.isdir(DIRECTORY)
    remedy = f"mount a tmpfs at {DIRECTORY}" if missing else "`shmlimit list` shows what there is"
    return SegmentNotFound(f"no segment {path}; {remedy}")
