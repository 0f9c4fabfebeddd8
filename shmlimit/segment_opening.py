"""Opening: finding a segment, trusting it only after checks, and making one where there is none.

What a crash left behind is taken over, or made anew when it is of no use any more. One that runs is
never touched; a master whose configuration needs another size puts a new one in its place, and
those who have the old one keep it until they end.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import posix_ipc

from shmlimit import _core
from shmlimit.errors import (
    ForeignBoot,
    ForeignClock,
    ForeignTimeNamespace,
    NotEnoughMemory,
    SegmentError,
    SegmentInUse,
    SegmentNotFound,
    TableDamaged,
    WrongGeometry,
    WrongKeys,
    WrongLayout,
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
)
from shmlimit.mastership import Mastership
from shmlimit.refusal import REMOVAL, refuse_file, refuse_header
from shmlimit.segment import KEYS_PER_LINE, PUBLISHER_WAIT_S, Clock, Segment
from shmlimit.segment_creation import SegmentSpec, create, open_file, remove_leftovers
from shmlimit.segment_name import DIRECTORY, has_name, segment_name, temporaries
from shmlimit.segment_usage import Usage, mapped_files, usage_of

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
# Ours by name, owner and mode, and of no use to anybody once its users have gone. WrongMagic is not
# among them: whatever that is, it is not ours to remove.
OF_NO_USE = (
    WrongSize,
    WrongLayout,
    WrongGeometry,
    WrongKeys,
    ForeignBoot,
    ForeignClock,
    ForeignTimeNamespace,
)

log = logging.getLogger("shmlimit")


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
        mapping = _trusted(memory.fd, name, posix_name, clock)
        inode = os.fstat(memory.fd).st_ino
    finally:
        memory.close_fd()
    try:
        descriptor = open_file(path)
    except FileNotFoundError:
        raise SegmentNotFound(f"segment {path} was removed while it was attached") from None
    try:
        if os.fstat(descriptor).st_ino != inode:
            raise SegmentNotFound(f"segment {path} was replaced while it was attached")
        # Alone first: of several that find it left behind only one gets it, and shares it when it
        # has been checked.
        alone = try_lock(descriptor, USERS_BYTE, EXCLUSIVE)
        locked = alone or try_lock(descriptor, USERS_BYTE, SHARED)
        if not locked or not has_name(path, inode):
            raise SegmentNotFound(f"segment {path} is held by one that checks or removes it")
        segment = Segment(posix_name, descriptor, mapping, clock)
        segment.left_behind = alone
        return segment
    except BaseException:
        os.close(descriptor)
        raise


def borrow(descriptor: int, name: str, owner: int) -> Segment:
    """The segment of an open file, whatever its name leads to by now, for one that is not its user:
    ended by `let_go`, not by `close`. The descriptor becomes the segment's.

    Raises the SegmentError of the first check that fails.
    """
    posix_name = segment_name(name, owner)
    refuse_file(os.fstat(descriptor), DIRECTORY + posix_name, owner)
    return Segment(posix_name, descriptor, _trusted(descriptor, name, posix_name, None), None)


def _trusted(descriptor: int, name: str, posix_name: str, clock: Clock | None) -> mmap.mmap:
    """The memory of a segment's file, when its header can be trusted."""
    path = DIRECTORY + posix_name
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes == 0:
        raise WrongSize(f"segment {path} is empty; {REMOVAL.format(path=path)}")
    mapping = mmap.mmap(descriptor, size_bytes)
    header = _core.read_header(mapping, posix_name)
    refuse_header(header, path, name, (clock or _core.monotonic_ns)())
    return mapping


def create_or_attach(spec: SegmentSpec) -> Segment:
    """The segment of that name, made if there is none. Of two that race, one makes it.

    One that a crash left behind is taken over with its buckets, after a check of its structure; it
    is made anew when it is damaged, has another size, or was made before a boot or by a version
    with another layout. Raises WrongKeys when a running segment was made for another number of
    keys, unless this is a master that may replace it, and SegmentInUse when it is another server's.
    Its counter rows are taken as they are: processes that find none share one.
    """
    with _explained(spec):
        deadline_s = time.monotonic() + SETTLE_S
        memory_deadline_s = 0.0
        while time.monotonic() < deadline_s:
            try:
                return _ready(attach(spec.name, spec.owner, spec.clock), spec)
            except SegmentNotFound:
                pass
            except OF_NO_USE as fault:
                made = _made_instead(spec, fault)
                if made is not None:
                    return made
            try:
                if not os.path.lexists(spec.path):
                    return create(spec)
            except (FileExistsError, FileNotFoundError):
                # Another process was faster, or swept our file before we had locked it: look again.
                os.stat(DIRECTORY)  # without it the error is another one
            except NotEnoughMemory:
                # Several that make it at once need the memory of several, all but one in vain.
                memory_deadline_s = memory_deadline_s or time.monotonic() + MEMORY_WAIT_S
                if time.monotonic() > memory_deadline_s and not _is_being_made(spec):
                    raise
            time.sleep(0.001 + secrets.randbelow(1000) / 1e6)
        raise SegmentError(
            f"segment {spec.name!r} could not be had for {SETTLE_S:g} s: one process holds it "
            f"alone and does not go on (it may be stopped: continue or end it), or processes that "
            f"open and close it all the time keep others out (keep one of them open)"
        )


def _is_being_made(spec: SegmentSpec) -> bool:
    return os.path.lexists(spec.path) or bool(temporaries(spec.posix_name))


def _ready(segment: Segment, spec: SegmentSpec) -> Segment:
    """The segment, ready for use. SegmentNotFound: it was left behind and is of no use: removed."""
    try:
        lead(segment, spec)
        _require_keys(segment, spec.keys)
        if segment.left_behind:
            segment.table.check()
            remove_leftovers(segment.posix_name)
            log.info("segment %s: taken over with its buckets from a crash", segment.path)
            segment.share()
        return segment
    except (WrongKeys, TableDamaged) as fault:
        if segment.left_behind:
            segment.remove_name()
        segment.close()
        if not segment.left_behind:
            raise
        _tell_made_anew(fault)
        raise SegmentNotFound(f"segment {segment.path} was of no use") from fault
    except BaseException:
        segment.close()
        raise


def lead(segment: Segment, spec: SegmentSpec) -> None:
    """Marks the segment as a master's, if this is one. Raises SegmentInUse."""
    if spec.role != "user" and not segment.lead(beside=_beside(spec)):
        raise _in_use(spec)


def _beside(spec: SegmentSpec) -> bool:
    return spec.role == "upgrade" or spec.shared


def _require_keys(segment: Segment, keys: int) -> None:
    lines = segment.header.lines
    if lines != _core.lines_for(keys):
        raise WrongKeys(
            f"segment {segment.path} was made for {lines * KEYS_PER_LINE} keys, not for {keys}: "
            f"close it in whatever uses it; {REMOVAL.format(path=segment.path)}"
        )


def _made_instead(spec: SegmentSpec, fault: SegmentError) -> Segment | None:
    """A segment in the place of one that was refused: the next generation of one that runs. None:
    it was removed, or is another one by now; look again.

    Raises the fault when it runs and this process may not replace it.
    """
    try:
        with opened(spec.path) as descriptor:
            if try_lock(descriptor, USERS_BYTE, EXCLUSIVE):
                _remove_if_refused(descriptor, spec)
                return None
            replaces = spec.role == "upgrade" or (spec.role == "master" and not spec.shared)
            if not replaces or not isinstance(fault, WrongLayout | WrongKeys):
                raise fault
            return _next_generation(descriptor, spec, fault)
    except FileNotFoundError:
        return None


def _remove_if_refused(descriptor: int, spec: SegmentSpec) -> None:
    """With the users' lock held exclusively."""
    if not has_name(spec.path, os.fstat(descriptor).st_ino):
        return
    try:
        refuse_file(os.fstat(descriptor), spec.path, spec.owner)
        _trusted(descriptor, spec.name, spec.posix_name, spec.clock)
    except OF_NO_USE as fault:
        os.unlink(spec.path)
        _tell_made_anew(fault)


def _tell_made_anew(fault: Exception) -> None:
    log.warning("segment left behind by a crash is made anew: %s", fault)


def _next_generation(descriptor: int, spec: SegmentSpec, fault: SegmentError) -> Segment | None:
    """Takes the name from a segment that runs. Its users' lock keeps others from removing the name
    meanwhile, its publisher's lock from replacing it too."""
    if not try_lock(descriptor, USERS_BYTE, SHARED):
        return None
    if not lock_within(descriptor, PUBLISHER_BYTE, EXCLUSIVE, PUBLISHER_WAIT_S):
        raise SegmentError(
            f"segment {spec.path}: somebody has been publishing limits for {PUBLISHER_WAIT_S:g} s: "
            f"a process that was stopped (continue or end it)"
        )
    if not has_name(spec.path, os.fstat(descriptor).st_ino):
        return None
    leading = Mastership.taken(descriptor, beside=_beside(spec))
    if leading is None:
        raise _in_use(spec)
    try:
        segment = create(spec, replace=True)
    finally:
        leading.close()
    why = str(fault).partition(": ")[0]
    log.warning(
        "segment %s is made anew for this server; processes that use the old one keep it until "
        "they end, and count for themselves meanwhile: %s", spec.path, why,
    )  # fmt: skip
    return segment


def _in_use(spec: SegmentSpec) -> SegmentInUse:
    usage = usage_of(spec.path, mapped_files())
    pids = [pid for pid in usage.pids if pid != os.getpid()] if usage else []
    return SegmentInUse(
        f"segment {spec.path} is the table of another server, which runs ({Usage(True, pids)}): "
        f"give this one another `name` in [table]; or, if both are to share their limits, write "
        f"shared = true there"
    )


@contextmanager
def _explained(spec: SegmentSpec) -> Iterator[None]:
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
            f"may make segments for another uid (here {spec.owner})",
        )
        raise SegmentError(
            f"segment {spec.posix_name} cannot be made or opened: {error}; {remedy}"
        ) from error
