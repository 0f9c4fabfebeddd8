"""Who uses a segment: found out without taking its lock away from anybody."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
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


class MappedFile(NamedTuple):
    """A segment in the memory of processes."""

    path: str  # under which it was mapped: who made the segment did it under its temporary name
    size_bytes: int
    pids: list[int]


def usage_of(path: str, mapped: dict[FileId, MappedFile]) -> Usage | None:
    """Who uses the file of that path, by its users' lock and by what mapped_files found; None for
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
        file = mapped.get((found.st_dev, found.st_ino))
        pids = file.pids if file else []
        return Usage(bool(pids) or held(descriptor, USERS_BYTE), pids)
    finally:
        os.close(descriptor)


def mapped_files() -> dict[FileId, MappedFile]:
    """The segments that processes have mapped to use them; views are not among them.

    Only as far as /proc lets this user see: the processes of others are missing, unless this is
    root, and so are those of other pid namespaces.
    """
    found: dict[FileId, MappedFile] = {}
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda entry: int(entry.name)):
        with suppress(OSError):  # it ended, or is another user's
            for file, path, size_bytes in _shared_files((entry / "maps").read_bytes()):
                mapped = found.setdefault(file, MappedFile(path, size_bytes, []))
                if int(entry.name) not in mapped.pids:
                    mapped.pids.append(int(entry.name))
    return found


def _shared_files(maps: bytes) -> Iterator[tuple[FileId, str, int]]:
    """A line: addresses, permissions, offset, device, inode, path."""
    for line in maps.splitlines():
        if b"/shmlimit" in line:
            addresses, permissions, _, device, inode, path = line.split(None, 5)
            if permissions.endswith(b"s"):
                major, minor = (int(part, 16) for part in device.split(b":"))
                begin, end = (int(part, 16) for part in addresses.split(b"-"))
                file = os.makedev(major, minor), int(inode)
                yield file, os.fsdecode(path).removesuffix(" (deleted)"), end - begin
