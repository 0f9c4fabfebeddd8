"""Byte locks on a segment's file, which the kernel drops when their holder is gone.

They belong to the open file description: forked processes that inherit the descriptor hold them
together, and the last one to go gives them back, however it went. No request ever takes one.

    byte 0   held exclusively by the agent that works, so that of several agents one does
    byte 1   held exclusively by a publisher of limits, while it publishes
    byte 2   held shared by every user, forked workers included: when nobody is left, the last to
             go removes the name
    byte 3   held shared by every live master of a server, but not by its workers (mastership.py)
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

AGENT_BYTE = 0
PUBLISHER_BYTE = 1
USERS_BYTE = 2
MASTER_BYTE = 3
SHARED = fcntl.F_RDLCK
EXCLUSIVE = fcntl.F_WRLCK

_POLL_S = 0.001


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A descriptor of its own, for a lock of its own."""
    # O_NOFOLLOW would refuse /proc/self/fd, whose entries are links
    flags = os.O_RDWR | os.O_CLOEXEC | (0 if path.startswith("/proc/") else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, byte: int, kind: int) -> bool:
    """Takes one byte's lock, SHARED or EXCLUSIVE; False when another has it."""
    try:
        _set(descriptor, byte, kind)
    except (BlockingIOError, PermissionError):
        return False
    return True


def lock_within(descriptor: int, byte: int, kind: int, wait_s: float) -> bool:
    """The same, tried again until it succeeds or that time has passed."""
    deadline_s = time.monotonic() + wait_s
    while not try_lock(descriptor, byte, kind):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def held(descriptor: int, byte: int) -> bool:
    """Whether anybody else has that byte's lock. Takes nothing: who looks must not be the user that
    a last one still meets. A descriptor that only reads will do."""
    return _call(fcntl.F_OFD_GETLK, descriptor, byte, EXCLUSIVE) != fcntl.F_UNLCK


def unlock(descriptor: int, byte: int) -> None:
    """Gives a lock back although another process may have inherited the descriptor."""
    _set(descriptor, byte, fcntl.F_UNLCK)


def _set(descriptor: int, byte: int, kind: int) -> None:
    _call(fcntl.F_OFD_SETLK, descriptor, byte, kind)


def _call(command: int, descriptor: int, byte: int, kind: int) -> int:
    """The kind of lock that is in the way, for a command that asks for it."""
    # struct flock: type, whence, start, length, pid (0 for these locks), padded
    flock = struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)
    found: int = struct.unpack_from("h", fcntl.fcntl(descriptor, command, flock))[0]
    return found
