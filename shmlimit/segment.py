"""The segment: a file in /dev/shm, made whole before it has a name, trusted only after checks.

Creation: a file under a temporary name, its memory reserved with posix_fallocate (a full /dev/shm
is then an error here, not a SIGBUS in a worker later), header written, given to the workers' user,
and only then linked to its name. Whoever finds the name finds a finished segment.

Locks are open-file-description byte locks on a descriptor of its own; the kernel drops them when
the last process that inherited it is gone, however it died. No request ever takes one.

    byte 1   held exclusively by a publisher of limits, while it publishes
    byte 2   held shared by every user, forked workers included: when nobody is left, the last to
             go removes the name
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import re
import secrets
import stat
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import posix_ipc

from shmlimit import _core
from shmlimit.errors import (
    ConfigError,
    ForeignBoot,
    ForeignClock,
    ForeignOwner,
    ForeignTimeNamespace,
    LimiterClosed,
    NotEnoughMemory,
    NotRegularFile,
    SegmentError,
    SegmentNotFound,
    UnsafePermissions,
    WrongGeometry,
    WrongSize,
)
from shmlimit.process import boot_id, namespace_inode

DIRECTORY = "/dev/shm"
PUBLISHER_BYTE = 1
USERS_BYTE = 2
NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
# Tick 0 lies this far before creation: a clock that tests turn back a little stays above it.
EPOCH_MARGIN_NS = 1_000_000_000
TEMPORARY = ".tmp-"
REMOVAL = "if nothing uses it, remove {path} and start again"

Clock = Callable[[], int]


def segment_name(name: str, owner: int) -> str:
    """The POSIX name of a limiter's segment: one namespace a user, so that none squats another's.

    `owner` is the uid of the workers. Raises ConfigError for a name that a file cannot bear.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"segment name {name!r}: accepted are 1 to 200 letters, digits, '_', '.' and '-'"
        )
    return f"/shmlimit.{owner}.{name}"


class Segment:
    """A mapped segment: its table, its locks, and the right to remove its name when last."""

    def __init__(self, posix_name: str, descriptor: int, mapping: mmap.mmap, clock: Clock | None):
        self.posix_name = posix_name
        self.path = DIRECTORY + posix_name
        self._inode = os.fstat(descriptor).st_ino
        self._descriptor = descriptor  # carries the locks, never mapped
        self.closed = False
        self.table = _core.Table(
            mapping, posix_name, self.publisher_lock, clock, namespace_inode("pid")
        )

    @contextmanager
    def publisher_lock(self) -> Iterator[None]:
        """Held while limits are published. Not for requests: it waits for other publishers.

        A descriptor of its own: forked processes share the one that counts users, and a lock on
        that would not keep them apart.
        """
        if self.closed:  # the descriptor's number may be another file's by now
            raise LimiterClosed(
                f"limiter {self.posix_name} was closed in this process; open it again"
            )
        with _opened(f"/proc/self/fd/{self._descriptor}") as descriptor:
            _lock(descriptor, PUBLISHER_BYTE, fcntl.F_WRLCK, wait=True)
            yield

    def close(self) -> bool:
        """Lets go of the segment; removes its name when nobody else uses it. True if removed."""
        if self.closed:
            return False
        self.closed = True
        self.table.close()
        os.close(self._descriptor)
        with suppress(OSError, posix_ipc.ExistentialError), _opened(self.path) as descriptor:
            ours = os.fstat(descriptor).st_ino == self._inode
            if ours and _lock(descriptor, USERS_BYTE, fcntl.F_WRLCK, wait=False):
                # Whoever removes it holds this lock. Another may have done so before we got it,
                # and the name may be a new segment's by now.
                if os.fstat(descriptor).st_nlink == 0:
                    return False
                posix_ipc.unlink_shared_memory(self.posix_name)
                return True
        return False


def create(name: str, owner: int, keys: int, workers: int, clock: Clock | None) -> Segment:
    """Makes the segment for that many live keys. Raises FileExistsError when the name is taken."""
    posix_name = segment_name(name, owner)
    lines = _core.lines_for(keys)
    size_bytes = _core.segment_bytes(lines, workers)
    _remove_leftovers(posix_name)
    temporary = f"{posix_name}{TEMPORARY}{secrets.token_hex(8)}"
    memory = posix_ipc.SharedMemory(temporary, posix_ipc.O_CREX, mode=0o600)
    os.fchmod(memory.fd, 0o600)  # whatever the umask says: it is opened by its name next
    descriptor = _open(DIRECTORY + temporary)
    try:
        try:
            _lock(descriptor, USERS_BYTE, fcntl.F_RDLCK, wait=False)
            _reserve(memory.fd, size_bytes, posix_name)
            mapping = mmap.mmap(memory.fd, size_bytes)
            _core.format_segment(
                mapping, _new_header(lines, workers, size_bytes, clock), secrets.token_bytes(16)
            )
            if owner != os.geteuid():
                os.fchown(memory.fd, owner, -1)
        finally:
            memory.close_fd()
        os.link(DIRECTORY + temporary, DIRECTORY + posix_name)
        return Segment(posix_name, descriptor, mapping, clock)
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        with suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_shared_memory(temporary)


def attach(name: str, owner: int, clock: Clock | None) -> Segment:
    """Maps an existing segment after checking that it can be trusted. Modifies nothing.

    Raises SegmentNotFound, or the SegmentError of the first check that fails.
    """
    posix_name = segment_name(name, owner)
    path = DIRECTORY + posix_name
    found = None
    with suppress(FileNotFoundError):
        found = os.lstat(path)
    _refuse_file(found, path, owner)
    try:
        memory = posix_ipc.SharedMemory(posix_name)
    except posix_ipc.ExistentialError:
        raise SegmentNotFound(f"no segment {path}: is the server running?") from None
    except (OSError, posix_ipc.Error) as error:
        raise SegmentError(f"segment {path} cannot be opened: {error}") from error
    try:
        _refuse_file(os.fstat(memory.fd), path, owner)
        size_bytes = os.fstat(memory.fd).st_size
        if size_bytes == 0:
            raise WrongSize(f"segment {path} is empty; {REMOVAL.format(path=path)}")
        mapping = mmap.mmap(memory.fd, size_bytes)
        inode = os.fstat(memory.fd).st_ino
    finally:
        memory.close_fd()
    _refuse_header(_core.read_header(mapping, posix_name), path)
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        raise SegmentNotFound(f"segment {path} was removed while it was attached") from None
    try:
        if os.fstat(descriptor).st_ino != inode:
            raise SegmentNotFound(f"segment {path} was replaced while it was attached")
        locked = _lock(descriptor, USERS_BYTE, fcntl.F_RDLCK, wait=False)
        if not locked or os.fstat(descriptor).st_nlink == 0:
            raise SegmentNotFound(f"segment {path} is being removed by its last user")
        return Segment(posix_name, descriptor, mapping, clock)
    except BaseException:
        os.close(descriptor)
        raise


def create_or_attach(
    name: str, owner: int, keys: int, workers: int, clock: Clock | None
) -> Segment:
    """The segment of that name, made if there is none. Of two that race, one makes it.

    Raises WrongGeometry when the running segment was made for another number of keys. Its counter
    rows are taken as they are: processes that find none share one.
    """
    with _explained(name, owner):
        for _ in range(16):
            try:
                segment = attach(name, owner, clock)
            except SegmentNotFound:
                # Another process was faster, or swept our file before we had locked it: look again.
                with suppress(FileExistsError, FileNotFoundError):
                    return create(name, owner, keys, workers, clock)
                continue
            header = segment.table.header
            if header.lines != _core.lines_for(keys):
                segment.close()
                raise WrongGeometry(
                    f"segment {segment.path} was made for {header.lines * 2} keys, not for {keys}: "
                    f"stop the servers that use it; {REMOVAL.format(path=segment.path)}"
                )
            return segment
        raise SegmentError(f"segment {name!r} kept appearing and disappearing; try again")


@contextmanager
def _explained(name: str, owner: int) -> Iterator[None]:
    """Makes a SegmentError, with what is needed, of whatever else the system refuses."""
    try:
        yield
    except SegmentError:
        raise
    except (OSError, posix_ipc.Error) as error:
        raise SegmentError(
            f"segment {segment_name(name, owner)} cannot be made or opened: {error}; {DIRECTORY} "
            f"must be a directory that uid {os.geteuid()} may write to, and only root may make "
            f"segments for another uid (here {owner})"
        ) from error


def _new_header(lines: int, workers: int, size_bytes: int, clock: Clock | None) -> _core.Header:
    now_ns = (clock or _core.monotonic_ns)()
    return _core.Header(
        lines=lines,
        worker_rows=workers,
        segment_bytes=size_bytes,
        epoch_ns=max(now_ns - EPOCH_MARGIN_NS, 0),
        wall_offset_ns=time.time_ns() - now_ns,
        clock_id=time.CLOCK_MONOTONIC,
        boot_id=boot_id(),
        time_ns_inode=namespace_inode("time"),
        pid_ns_inode=namespace_inode("pid"),
    )


def _remove_leftovers(posix_name: str) -> None:
    """Removes what creators of this segment left that were killed before it had its name."""
    for entry in os.scandir(DIRECTORY):
        if entry.name.startswith(posix_name[1:] + TEMPORARY):
            with suppress(OSError), _opened(entry.path) as descriptor:
                if _lock(descriptor, USERS_BYTE, fcntl.F_WRLCK, wait=False):
                    os.unlink(entry.path)


def _reserve(descriptor: int, size_bytes: int, posix_name: str) -> None:
    """Takes the memory now, or says what is missing and how to give it."""
    try:
        os.posix_fallocate(descriptor, 0, size_bytes)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG):
            raise
        space = os.statvfs(DIRECTORY)
        free_mib = space.f_bavail * space.f_frsize / 2**20
        raise NotEnoughMemory(
            f"segment {posix_name} needs {size_bytes / 2**20:.1f} MiB of {DIRECTORY}, which has "
            f"{free_mib:.1f} MiB free: lower `keys`, or enlarge {DIRECTORY} (Docker: "
            f"--shm-size={size_bytes // 2**20 + 64}m; Kubernetes: an emptyDir volume with "
            f"medium: Memory and a sizeLimit, mounted at {DIRECTORY})"
        ) from None


def _refuse_file(found: os.stat_result | None, path: str, owner: int) -> None:
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


def _refuse_header(header: _core.Header, path: str) -> None:
    """Refuses a well-formed segment whose clock readings would mean something else here."""
    removal = REMOVAL.format(path=path)
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


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    # O_NOFOLLOW would refuse /proc/self/fd, whose entries are links
    flags = os.O_RDWR | os.O_CLOEXEC | (0 if path.startswith("/proc/") else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int, byte: int, kind: int, *, wait: bool) -> bool:
    """Takes one byte's open-file-description lock; False when another has it and wait is not set.

    struct flock: type, whence, start, length, pid (0 for these locks), padded.
    """
    command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    try:
        fcntl.fcntl(descriptor, command, struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True
