"""A mapped segment: its table, its locks, and the right to remove its name when last.

segment_creation.py makes one, segment_opening.py finds one, lock.py says what its locks mean.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import posix_ipc

from shmlimit import _core
from shmlimit.errors import LimiterClosed, SegmentError
from shmlimit.lock import (
    AGENT_BYTE,
    EXCLUSIVE,
    PUBLISHER_BYTE,
    SHARED,
    USERS_BYTE,
    held,
    lock_within,
    opened,
    try_lock,
    unlock,
)
from shmlimit.mastership import Mastership
from shmlimit.process import namespace_inode
from shmlimit.segment_name import DIRECTORY, has_name

# Tick 0 lies this far before creation: a clock that tests turn back a little stays above it.
EPOCH_MARGIN_NS = 1_000_000_000
PUBLISHER_WAIT_S = 10.0  # publishing takes microseconds
KEYS_PER_LINE = 2  # a line has four slots, a key has room for two

Clock = Callable[[], int]


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
        self._mastership: Mastership | None = None
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
    def reopened(self) -> Iterator[int]:
        """A descriptor of its own: forked processes share the one that counts users, and a lock on
        that would not keep them apart."""
        with ExitStack() as stack:
            try:
                descriptor = stack.enter_context(opened(f"/proc/self/fd/{self._descriptor}"))
            except OSError as error:
                raise self._lost(error) from error
            if self.closed or not self._is_ours(descriptor):
                raise self._lost(None)
            yield descriptor

    @contextmanager
    def publisher_lock(self) -> Iterator[None]:
        """Held while limits are published. Not for requests: it waits for other publishers."""
        with self.reopened() as descriptor:
            if not lock_within(descriptor, PUBLISHER_BYTE, EXCLUSIVE, PUBLISHER_WAIT_S):
                raise SegmentError(
                    f"segment {self.path}: somebody has been publishing limits for "
                    f"{PUBLISHER_WAIT_S:g} s: a process that was stopped (continue or end it), or "
                    f"a signal handler of this one that publishes while it publishes"
                )
            try:
                yield
            finally:
                # Given back by hand: a child that was forked meanwhile would keep it.
                unlock(descriptor, PUBLISHER_BYTE)

    @property
    def has_agent(self) -> bool:
        """Whether some agent has the right to work, see lock.py."""
        with self.reopened() as descriptor:
            return held(descriptor, AGENT_BYTE)

    @property
    def has_name(self) -> bool:
        """Whether others can find it. Its users go on without, when somebody has removed the name
        or given it to a new segment."""
        return has_name(self.path, self._inode)

    def share(self) -> None:
        """Lets others attach to a segment that was left behind."""
        try_lock(self._descriptor, USERS_BYTE, SHARED)

    def lead(self, *, beside: bool) -> bool:
        """Marks the segment as this process's, the master of a server. False when another server's
        has it, unless `beside` says that there may be several."""
        if self._mastership is None:
            self._mastership = Mastership.taken(self._descriptor, beside=beside)
        return self._mastership is not None

    def resign(self) -> None:
        """Takes that mark away."""
        if self._mastership is not None:
            self._mastership.close()

    def remove_name(self) -> bool:
        """With the users' lock held exclusively: nobody else can attach, or remove it meanwhile.
        False when the name was removed before, and may be a new segment's by now."""
        if not self.has_name:
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

    def let_go(self) -> bool:
        """The same without removing the name. False when that was done before."""
        if self.closed:
            return False
        self.closed = True
        table, self._table = self.table, None  # the memory goes with the last Limit
        table.close()
        self.resign()
        if self._is_ours(self._descriptor):
            os.close(self._descriptor)
        return True

    def close(self) -> bool:
        """Lets go of the segment; removes its name when nobody else uses it. True if removed."""
        if not self.let_go():
            return False
        with suppress(OSError, posix_ipc.ExistentialError), opened(self.path) as descriptor:
            if self._is_ours(descriptor) and try_lock(descriptor, USERS_BYTE, EXCLUSIVE):
                return self.remove_name()
        return False
