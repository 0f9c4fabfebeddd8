"""The segment: a file in /dev/shm, made whole before it has a name, trusted only after checks.

Creation: a file under a temporary name, its memory reserved with posix_fallocate (a full /dev/shm
is then an error here, not a SIGBUS in a worker later), header written, given to the workers' user,
and only then linked to its name. Whoever finds the name finds a finished segment.

lock.py says what its locks mean.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import posix_ipc

from shmlimit import _core
from shmlimit.errors import (
    ConfigError,
    LimiterClosed,
    NotEnoughMemory,
    SegmentError,
    SegmentNotFound,
    TableDamaged,
    WrongGeometry,
    WrongSize,
)
from shmlimit.lock import (
    EXCLUSIVE,
    PUBLISHER_BYTE,
    SHARED,
    USERS_BYTE,
    lock_within,
    opened,
    try_lock,
    unlock,
)
from shmlimit.process import boot_id, namespace_inode
from shmlimit.refusal import REMOVAL, refuse_file, refuse_header

DIRECTORY = "/dev/shm"
NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
# Tick 0 lies this far before creation: a clock that tests turn back a little stays above it.
EPOCH_MARGIN_NS = 1_000_000_000
PUBLISHER_WAIT_S = 10.0  # publishing takes microseconds
KEYS_PER_LINE = 2  # a line has four slots, a key has room for two
UID_NONE = 0xFFFFFFFF  # chown's "leave as it is"
MEMORY_WAIT_S = 1.0  # for others that make the same segment
SETTLE_S = 10.0  # for a name that others make and remove all the time
REMEDIES = {  # by errno
    errno.ENOENT: f"mount a tmpfs at {DIRECTORY}",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files (fs.file-max)",
    errno.ENOMEM: "lower `keys`, or raise the limit of address space (ulimit -v)",
    errno.ENOSPC: f"free or enlarge {DIRECTORY}: its space or its inodes are used up",
    errno.EFBIG: "lower `keys`, or raise the limit of file size (ulimit -f)",
}

log = logging.getLogger("shmlimit")

Clock = Callable[[], int]


def segment_name(name: str, owner: int) -> str:
    """The POSIX name of a limiter's segment: one namespace a user, so that users do not meet by
    accident. A stranger's file of that name is refused when it is attached.

    `owner` is the uid of the workers. Raises ConfigError for a name that a file cannot bear, and
    for what is no uid.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            f"segment name {name!r}: accepted are 1 to 200 letters, digits, '_', '.' and '-'"
        )
    if not isinstance(owner, int) or isinstance(owner, bool) or not 0 <= owner < UID_NONE:
        raise ConfigError(
            f"owner {owner!r}: accepted is the number of a user, such as os.geteuid() or "
            f"pwd.getpwnam('www-data').pw_uid"
        )
    return f"/shmlimit.{owner}.{name}"


def temporary_name(posix_name: str) -> str:
    """A name that no segment can have, for one that is being made."""
    return f"{_temporary_prefix(posix_name)}{secrets.token_hex(8)}"


def _temporary_prefix(posix_name: str) -> str:
    return f"/shmlimit-tmp{posix_name.removeprefix('/shmlimit')}."


def _temporaries(posix_name: str) -> list[str]:
    """The paths of what bears such a name for this segment."""
    ours = re.compile(re.escape(_temporary_prefix(posix_name)[1:]) + "[0-9a-f]{16}")
    return [entry.path for entry in os.scandir(DIRECTORY) if ours.fullmatch(entry.name)]


class Segment:
    """A mapped segment: its table, its locks, and the right to remove its name when last."""

    left_behind = False  # nobody used it when it was attached; then it is held alone until `share`

    def __init__(self, posix_name: str, descriptor: int, mapping: mmap.mmap, clock: Clock | None):
        self.posix_name = posix_name
        self.path = DIRECTORY + posix_name
        self._inode = os.fstat(descriptor).st_ino
        self._descriptor = descriptor  # carries the users' lock, never mapped
        mapping.madvise(mmap.MADV_DONTDUMP)  # a core dump would tell the secret of the hash
        self.closed = False
        self._table: _core.Table | None = _core.Table(
            mapping, posix_name, self.publisher_lock, clock, namespace_inode("pid")
        )
        self.header = self._table.header

    @property
    def table(self) -> _core.Table:
        if self._table is None:
            raise self._lost(None)
        return self._table

    @contextmanager
    def publisher_lock(self) -> Iterator[None]:
        """Held while limits are published. Not for requests: it waits for other publishers.

        A descriptor of its own: forked processes share the one that counts users, and a lock on
        that would not keep them apart.
        """
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(opened(f"/proc/self/fd/{self._descriptor}"))
            except OSError as error:
                raise self._lost(error) from error
            if self.closed or not self._is_ours(descriptor):
                raise self._lost(None)
            if not lock_within(descriptor, PUBLISHER_BYTE, EXCLUSIVE, PUBLISHER_WAIT_S):
                raise SegmentError(
                    f"segment {self.path}: somebody has been publishing limits for "
                    f"{PUBLISHER_WAIT_S:g} s: a process that was stopped (continue or end it), or "
                    f"a signal handler of this one that publishes while it publishes"
                )
            # Given back by hand: a child that was forked meanwhile would keep it.
            stack.callback(unlock, descriptor, PUBLISHER_BYTE)
            yield

    def share(self) -> None:
        """Lets others attach to a segment that was left behind."""
        try_lock(self._descriptor, USERS_BYTE, SHARED)

    def remove_name(self) -> bool:
        """With the users' lock held exclusively: nobody else can attach, or remove it meanwhile.
        False when the name was removed before, and may be a new segment's by now."""
        if not _has_name(self.path, self._inode):
            return False
        posix_ipc.unlink_shared_memory(self.posix_name)
        return True

    def _lost(self, error: OSError | None) -> Exception:
        if self.closed:
            return LimiterClosed(
                f"limiter {self.posix_name} was closed in this process; open it again"
            )
        return SegmentError(
            f"segment {self.path}: its descriptor cannot be used "
            f"({error or 'it is another file'}): keep descriptors open when daemonizing, keep "
            f"/proc mounted, and when the process changes its user give that uid as `owner`"
        )

    def _is_ours(self, descriptor: int) -> bool:
        """Whether a descriptor is still this segment's: others may have closed and reused it."""
        try:
            return os.fstat(descriptor).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> bool:
        """Lets go of the segment; removes its name when nobody else uses it. True if removed."""
        if self.closed:
            return False
        self.closed = True
        table, self._table = self.table, None  # the memory goes with the last Limit
        table.close()
        if self._is_ours(self._descriptor):
            os.close(self._descriptor)
        with suppress(OSError, posix_ipc.ExistentialError), opened(self.path) as descriptor:
            if self._is_ours(descriptor) and try_lock(descriptor, USERS_BYTE, EXCLUSIVE):
                return self.remove_name()
        return False


def create(name: str, owner: int, keys: int, workers: int, clock: Clock | None) -> Segment:
    """Makes the segment for that many live keys. Raises FileExistsError when the name is taken."""
    posix_name = segment_name(name, owner)
    lines = _core.lines_for(keys)
    size_bytes = _core.segment_bytes(lines, workers)
    remove_leftovers(posix_name)
    temporary = temporary_name(posix_name)
    with ExitStack() as always, ExitStack() as undo:
        memory = posix_ipc.SharedMemory(temporary, posix_ipc.O_CREX, mode=0o600)
        always.callback(_unlink_if_there, temporary)
        always.callback(memory.close_fd)
        os.fchmod(memory.fd, 0o600)  # whatever the umask says: it is opened by its name next
        descriptor = _open(DIRECTORY + temporary)
        undo.callback(os.close, descriptor)
        try_lock(descriptor, USERS_BYTE, SHARED)
        _reserve(memory.fd, size_bytes, posix_name)
        mapping = mmap.mmap(memory.fd, size_bytes)
        undo.callback(_unmap, mapping)
        _core.format_segment(
            mapping, _new_header(lines, workers, size_bytes, clock), secrets.token_bytes(16)
        )
        if owner != os.geteuid():
            os.fchown(memory.fd, owner, -1)
        segment = Segment(posix_name, descriptor, mapping, clock)
        undo.callback(segment.table.close)
        os.link(DIRECTORY + temporary, DIRECTORY + posix_name)
        undo.pop_all()
        return segment


def _has_name(path: str, inode: int) -> bool:
    """Whether the name is that file's. Its count of links does not tell: a creator that was killed
    may have left it a second one."""
    try:
        return os.lstat(path).st_ino == inode
    except FileNotFoundError:
        return False


def _is_being_made(posix_name: str) -> bool:
    return os.path.lexists(DIRECTORY + posix_name) or bool(_temporaries(posix_name))


def _unmap(mapping: mmap.mmap) -> None:
    with suppress(BufferError):  # a table still has it, and gives it back when it goes
        mapping.close()


def _unlink_if_there(posix_name: str) -> None:
    with suppress(posix_ipc.ExistentialError):
        posix_ipc.unlink_shared_memory(posix_name)


def attach(name: str, owner: int, clock: Clock | None) -> Segment:
    """Maps an existing segment after checking that it can be trusted. Modifies nothing. One that
    was left behind is held alone, until `share`.

    Raises SegmentNotFound, or the SegmentError of the first check that fails.
    """
    posix_name = segment_name(name, owner)
    path = DIRECTORY + posix_name
    found = None
    with suppress(FileNotFoundError):
        found = os.lstat(path)
    refuse_file(found, path, owner)
    try:
        memory = posix_ipc.SharedMemory(posix_name)
    except posix_ipc.ExistentialError:
        raise SegmentNotFound(f"no segment {path}: is the server running?") from None
    except (OSError, posix_ipc.Error) as error:
        raise SegmentError(f"segment {path} cannot be opened: {error}") from error
    try:
        refuse_file(os.fstat(memory.fd), path, owner)
        size_bytes = os.fstat(memory.fd).st_size
        if size_bytes == 0:
            raise WrongSize(f"segment {path} is empty; {REMOVAL.format(path=path)}")
        mapping = mmap.mmap(memory.fd, size_bytes)
        inode = os.fstat(memory.fd).st_ino
    finally:
        memory.close_fd()
    refuse_header(_core.read_header(mapping, posix_name), path)
    try:
        descriptor = _open(path)
    except FileNotFoundError:
        raise SegmentNotFound(f"segment {path} was removed while it was attached") from None
    try:
        if os.fstat(descriptor).st_ino != inode:
            raise SegmentNotFound(f"segment {path} was replaced while it was attached")
        # Alone first: of several that find it left behind only one gets it, and shares it when it
        # has been checked.
        alone = try_lock(descriptor, USERS_BYTE, EXCLUSIVE)
        locked = alone or try_lock(descriptor, USERS_BYTE, SHARED)
        if not locked or not _has_name(path, inode):
            raise SegmentNotFound(f"segment {path} is held by one that checks or removes it")
        segment = Segment(posix_name, descriptor, mapping, clock)
        segment.left_behind = alone
        return segment
    except BaseException:
        os.close(descriptor)
        raise


def create_or_attach(
    name: str, owner: int, keys: int, workers: int, clock: Clock | None
) -> Segment:
    """The segment of that name, made if there is none. Of two that race, one makes it.

    One that a crash left behind is taken over with its buckets, after a check of its structure; it
    is made anew when it is damaged or has another size. Raises WrongGeometry when a running segment
    was made for another number of keys. Its counter rows are taken as they are: processes that find
    none share one.
    """
    with _explained(name, owner):
        posix_name = segment_name(name, owner)
        deadline_s = time.monotonic() + SETTLE_S
        memory_deadline_s = 0.0
        while time.monotonic() < deadline_s:
            try:
                return _taken_over(attach(name, owner, clock), keys)
            except SegmentNotFound:
                pass
            try:
                if not os.path.lexists(DIRECTORY + posix_name):
                    return create(name, owner, keys, workers, clock)
            except (FileExistsError, FileNotFoundError):
                # Another process was faster, or swept our file before we had locked it: look again.
                os.stat(DIRECTORY)  # without it the error is another one
            except NotEnoughMemory:
                # Several that make it at once need the memory of several, all but one in vain.
                memory_deadline_s = memory_deadline_s or time.monotonic() + MEMORY_WAIT_S
                if time.monotonic() > memory_deadline_s and not _is_being_made(posix_name):
                    raise
            time.sleep(0.001 + secrets.randbelow(1000) / 1e6)
        raise SegmentError(
            f"segment {name!r} could not be had for {SETTLE_S:g} s: one process holds it alone and "
            f"does not go on (it may be stopped: continue or end it), or processes that open and "
            f"close it all the time keep others out (keep one of them open)"
        )


def _taken_over(segment: Segment, keys: int) -> Segment:
    """The segment, ready for use. SegmentNotFound: it was left behind and is of no use: removed."""
    try:
        _require_keys(segment, keys)
        if segment.left_behind:
            segment.table.check()
            remove_leftovers(segment.posix_name)
            log.info("segment %s: taken over with its buckets from a crash", segment.path)
            segment.share()
        return segment
    except (WrongGeometry, TableDamaged) as fault:
        if segment.left_behind:
            segment.remove_name()
        segment.close()
        if not segment.left_behind:
            raise
        log.warning("segment left behind by a crash is made anew: %s", fault)
        raise SegmentNotFound(f"segment {segment.path} was of no use") from fault
    except BaseException:
        segment.close()
        raise


def _require_keys(segment: Segment, keys: int) -> None:
    lines = segment.header.lines
    if lines != _core.lines_for(keys):
        raise WrongGeometry(
            f"segment {segment.path} was made for {lines * KEYS_PER_LINE} keys, not for {keys}: "
            f"close it in whatever uses it; {REMOVAL.format(path=segment.path)}"
        )


@contextmanager
def _explained(name: str, owner: int) -> Iterator[None]:
    """Makes a SegmentError, with what is needed, of whatever else the system refuses."""
    try:
        yield
    except SegmentError:
        raise
    except (OSError, posix_ipc.Error) as error:
        number = error.errno if isinstance(error, OSError) else None
        remedy = REMEDIES.get(
            number or 0,
            f"{DIRECTORY} must be a directory that uid {os.geteuid()} may write to, and only root "
            f"may make segments for another uid (here {owner})",
        )
        posix_name = segment_name(name, owner)
        raise SegmentError(
            f"segment {posix_name} cannot be made or opened: {error}; {remedy}"
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


def remove_leftovers(posix_name: str) -> list[str]:
    """Removes what creators of this segment left that were killed before it had its name. Returns
    the paths."""
    removed = []
    for path in _temporaries(posix_name):
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


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
