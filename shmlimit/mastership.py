"""The mark of a server's master on its segment: a lock that lives exactly as long as that process.

It is an open-file-description lock on a descriptor of its own, which forked children close at once.
A classic record lock would not be inherited either, but is dropped by any close of the same file in
the process, and a master opens and closes its segment whenever it publishes.

Masters hold it shared, so that several may when they are meant to: an upgraded one beside its
predecessor, or servers that share their limits. One that is to be alone takes it exclusively first.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress

from shmlimit.lock import EXCLUSIVE, MASTER_BYTE, SHARED, lock_within, try_lock

DOWNGRADE_WAIT_S = 1.0  # another master holds it exclusively for microseconds

_held: weakref.WeakSet[Mastership] = weakref.WeakSet()


class Mastership:
    """An open descriptor of the segment and its lock, until `close` or the end of the process."""

    def __init__(self, segment_descriptor: int) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC
        self._descriptor = os.open(f"/proc/self/fd/{segment_descriptor}", flags)
        self._inode = os.fstat(self._descriptor).st_ino
        self._open = True
        _held.add(self)

    @classmethod
    def taken(cls, segment_descriptor: int, *, beside: bool) -> Mastership | None:
        """None when another live process has it; with `beside` that is no obstacle."""
        mastership = cls(segment_descriptor)
        if mastership._locked(beside):
            return mastership
        mastership.close()
        return None

    def _locked(self, beside: bool) -> bool:
        if beside:
            return lock_within(self._descriptor, MASTER_BYTE, SHARED, DOWNGRADE_WAIT_S)
        alone = try_lock(self._descriptor, MASTER_BYTE, EXCLUSIVE)
        return alone and try_lock(self._descriptor, MASTER_BYTE, SHARED)

    def close(self) -> None:
        """The lock goes with the last descriptor; children have closed theirs."""
        was_open, self._open = self._open, False
        with suppress(OSError):  # somebody has closed all descriptors
            if was_open and os.fstat(self._descriptor).st_ino == self._inode:
                os.close(self._descriptor)


def _close_in_child() -> None:
    for mastership in list(_held):
        mastership.close()


os.register_at_fork(after_in_child=_close_in_child)
