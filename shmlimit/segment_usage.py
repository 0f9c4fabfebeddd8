"""Who uses a segment: found out without taking its lock away from anybody."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from shmlimit.lock import USERS_BYTE, held

FileId = tuple[int, int]  # device and inode
PIDS_TOLD = 8  # in a line of text


class Usage(NamedTuple):
    """Whether anybody uses a segment, and the pids among them that this user may see."""

    in_use: bool
    pids: list[int]

    def __str__(self) -> str:
        if not self.in_use:
            return "left behind"
        if not self.pids:
            return "in use"
        more = len(self.pids) - PIDS_TOLD
        told = ", ".join(map(str, self.pids[:PIDS_TOLD]))
        return f"in use by {told}" + (f" and {more} more" if more > 0 else "")


def usage_of(path: str, pids_by_file: dict[FileId, list[int]]) -> Usage | None:
    """Who uses the file of that path, by its users' lock and by what mapping_pids found; None for
    what is no file that this user may read."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # to open a FIFO would wake its writer
            return None
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(path, flags)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        pids = pids_by_file.get((found.st_dev, found.st_ino), [])
        return Usage(bool(pids) or held(descriptor, USERS_BYTE), pids)
    finally:
        os.close(descriptor)


def mapping_pids() -> dict[FileId, list[int]]:
    """The processes that have segments mapped to use them, by file; views are not among them.

    Only as far as /proc lets this user see: the processes of others are missing, unless this is
    root, and so are those of other pid namespaces.
    """
    pids: dict[FileId, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended, or is another user's
            for file in _shared_files((entry / "maps").read_bytes()):
                pids.setdefault(file, []).append(int(entry.name))
    return {file: sorted(found) for file, found in pids.items()}


def _shared_files(maps: bytes) -> set[FileId]:
    """A line: addresses, permissions, offset, device, inode, path. The path is no help: who made
    the segment mapped it under its temporary name, which is gone."""
    files = set()
    for line in maps.splitlines():
        if b"/shmlimit" in line:
            _, permissions, _, device, inode, _ = line.split(None, 5)
            if permissions.endswith(b"s"):
                major, minor = (int(part, 16) for part in device.split(b":"))
                files.add((os.makedev(major, minor), int(inode)))
    return files
