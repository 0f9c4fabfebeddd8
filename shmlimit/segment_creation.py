"""Creation: a segment is made whole before it has its name.

It is a file under a temporary name, its memory reserved with posix_fallocate (a full /dev/shm is
then an error here, not a SIGBUS in a worker later), header written, given to the workers' user, and
only then linked to its name. Whoever finds the name finds a finished segment.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Literal

import posix_ipc

from shmlimit import _core
from shmlimit.errors import NotEnoughMemory
from shmlimit.lock import EXCLUSIVE, SHARED, USERS_BYTE, opened, try_lock
from shmlimit.process import boot_id, namespace_inode
from shmlimit.segment import EPOCH_MARGIN_NS, Clock, Segment
from shmlimit.segment_name import DIRECTORY, segment_name, temporaries, temporary_name

Role = Literal["user", "master", "upgrade"]


@dataclass(frozen=True, slots=True)
class SegmentSpec:
    """What a process wants to have."""

    name: str
    owner: int  # uid of the workers
    keys: int  # most live keys
    workers: int  # rows of counters
    clock: Clock | None = None
    role: Role = "user"  # "master" of a server, or one that takes over from another ("upgrade")
    shared: bool = False  # whether a master tolerates masters of other servers

    @property
    def posix_name(self) -> str:
        return segment_name(self.name, self.owner)

    @property
    def path(self) -> str:
        return DIRECTORY + self.posix_name


def create(spec: SegmentSpec, *, replace: bool = False) -> Segment:
    """Makes the segment. Raises FileExistsError when the name is taken, unless it is to replace
    what has it: those who use that keep it, without a name."""
    lines = _core.lines_for(spec.keys)
    size_bytes = _core.segment_bytes(lines, spec.workers)
    remove_leftovers(spec.posix_name)
    temporary = temporary_name(spec.posix_name)
    with ExitStack() as always, ExitStack() as undo:
        memory = posix_ipc.SharedMemory(temporary, posix_ipc.O_CREX, mode=0o600)
        always.callback(_unlink_if_there, temporary)
        always.callback(memory.close_fd)
        os.fchmod(memory.fd, 0o600)  # whatever the umask says: it is opened by its name next
        descriptor = open_file(DIRECTORY + temporary)
        undo.callback(os.close, descriptor)
        try_lock(descriptor, USERS_BYTE, SHARED)
        _reserve(memory.fd, size_bytes, spec.posix_name)
        mapping = mmap.mmap(memory.fd, size_bytes)
        undo.callback(_unmap, mapping)
        _core.format_segment(mapping, _header(spec, lines, size_bytes), secrets.token_bytes(16))
        if spec.owner != os.geteuid():
            os.fchown(memory.fd, spec.owner, -1)
        segment = Segment(spec.posix_name, descriptor, mapping, spec.clock)
        undo.callback(segment.table.close)
        if spec.role != "user":
            segment.lead(beside=True)
            undo.callback(segment.resign)
        (os.replace if replace else os.link)(DIRECTORY + temporary, spec.path)
        undo.pop_all()
        return segment


def _unmap(mapping: mmap.mmap) -> None:
    with suppress(BufferError):  # a table still has it, and gives it back when it goes
        mapping.close()


def _unlink_if_there(posix_name: str) -> None:
    with suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_shared_memory(posix_name)


def _header(spec: SegmentSpec, lines: int, size_bytes: int) -> _core.Header:
    now_ns = (spec.clock or _core.monotonic_ns)()
    return _core.Header(
        lines=lines,
        worker_rows=spec.workers,
        segment_bytes=size_bytes,
        epoch_ns=max(now_ns - EPOCH_MARGIN_NS, 0),
        wall_offset_ns=time.time_ns() - now_ns,
        clock_id=time.CLOCK_MONOTONIC,
        boot_id=boot_id(),
        time_ns_inode=namespace_inode("time"),
        pid_ns_inode=namespace_inode("pid"),
        name=spec.name,
    )


def remove_leftovers(posix_name: str) -> list[str]:
    """Removes what creators of this segment left that were killed before it had its name. Returns
    the paths."""
    removed = []
    for path in temporaries(posix_name):
        with suppress(OSError), opened(path) as descriptor:
            if try_lock(descriptor, USERS_BYTE, EXCLUSIVE):
                os.unlink(path)
                removed.append(path)
    return removed


def _reserve(descriptor: int, size_bytes: int, posix_name: str) -> None:
    """Takes the memory now, or says what is missing and how to give it."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        space = os.statvfs(DIRECTORY)
        free_mib = space.f_bavail * space.f_frsize / 2**20
        raise NotEnoughMemory(
            f"segment {posix_name} needs {size_bytes / 2**20:.1f} MiB of {DIRECTORY}, which has "
            f"{free_mib:.1f} MiB free: lower `keys`, or enlarge {DIRECTORY} (Docker: "
            f"--shm-size={size_bytes // 2**20 + 64}m; Kubernetes: an emptyDir volume with "
            f"medium: Memory and a sizeLimit, mounted at {DIRECTORY})"
        ) from None


def open_file(path: str) -> int:
    """A descriptor for the lock of a user."""
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
