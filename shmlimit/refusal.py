"""Why a segment is not trusted: each reason is an error of its own, and nothing is modified.

The reasons that lie in the segment's own bytes (magic, layout, size, geometry) are found where
these are read, in the core's read_header.
"""

from __future__ import annotations

import os
import stat
import time

from shmlimit import _core
from shmlimit.errors import (
    ForeignBoot,
    ForeignClock,
    ForeignOwner,
    ForeignTimeNamespace,
    NotRegularFile,
    SegmentNotFound,
    UnsafePermissions,
    WrongName,
)
from shmlimit.process import boot_id, namespace_inode

REMOVAL = "if nothing uses it, remove {path} and start again"


def refuse_file(found: os.stat_result | None, path: str, owner: int) -> None:
    """Refuses what bears the name but cannot be our segment, before it is opened and after."""
    if found is None:
        raise SegmentNotFound(f"no segment {path}: is the server running?")
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularFile(f"{path} is not a regular file; remove it and start again")
    if found.st_uid != owner:
        raise ForeignOwner(
            f"segment {path} belongs to uid {found.st_uid}, not to uid {owner}: run as that user, "
            f"or have its owner remove it"
        )
    if found.st_mode & 0o077:
        raise UnsafePermissions(
            f"segment {path} has mode {stat.S_IMODE(found.st_mode):04o}, so that others may have "
            f"read or changed it; accepted is 0600; {REMOVAL.format(path=path)}"
        )


def refuse_header(header: _core.Header, path: str, name: str, now_ns: int) -> None:
    """Refuses a well-formed segment that is another one than the one asked for, or whose clock
    readings would mean something else here. `now_ns` is a reading of the clock that it is to be on.
    """
    removal = REMOVAL.format(path=path)
    if header.name != name:
        raise WrongName(
            f"segment {path} was made as {header.name!r}, not as {name!r}: its file was renamed, "
            f"or two long names share a short one: choose another name; {removal}"
        )
    if header.boot_id != boot_id():
        raise ForeignBoot(f"segment {path} was made before the last boot; {removal}")
    if header.clock_id != time.CLOCK_MONOTONIC:
        raise ForeignClock(
            f"segment {path} runs on clock {header.clock_id}, not on CLOCK_MONOTONIC "
            f"({time.CLOCK_MONOTONIC}); {removal}"
        )
    if header.time_ns_inode != namespace_inode("time"):
        raise ForeignTimeNamespace(
            f"segment {path} was made in time namespace {header.time_ns_inode}, this process is "
            f"in {namespace_inode('time')}: their clocks differ; share the namespace, or use "
            f"another segment name"
        )
    if header.epoch_ns > now_ns:
        raise ForeignClock(
            f"segment {path} begins {(header.epoch_ns - now_ns) / 1e9:g} s from now by this "
            f"process's clock: it runs on another one; {removal}"
        )
