"""Locks that processes can share, each around one bucket: what a limiter would be made of that had
no compare-and-swap. The bucket's step is compiled (floor.Bucket); the lock is used in its fastest
form from Python. The wait is a blocking one, as nobody could do without.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
from collections.abc import Callable
from itertools import repeat

import posix_ipc

from bench.crew import Loop, Maker
from bench.floor.floor import Bucket


def _locked(acquire: Callable[[], object], release: Callable[[], object], bucket: Bucket) -> Loop:
    take = bucket.take

    def loop(calls: int) -> None:
        for _ in repeat(None, calls):
            acquire()
            take()
            release()

    return loop


def multiprocessing_lock(bucket: Bucket, path: str) -> Maker:
    """multiprocessing.Lock: an unnamed POSIX semaphore of the standard library."""
    lock = multiprocessing.get_context("fork").Lock()
    return lambda: _locked(lock.acquire, lock.release, bucket)


def posix_semaphore(bucket: Bucket, path: str) -> Maker:
    """posix_ipc.Semaphore, which has no name any more once it is open."""
    semaphore = posix_ipc.Semaphore(None, posix_ipc.O_CREX, initial_value=1)
    semaphore.unlink()
    return lambda: _locked(semaphore.acquire, semaphore.release, bucket)


def file_lock(bucket: Bucket, path: str) -> Maker:
    """fcntl.flock on a file. Each process opens it: processes that inherit share the lock."""

    def make() -> Loop:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

        def loop(calls: int) -> None:
            flock, exclusive, unlock = fcntl.flock, fcntl.LOCK_EX, fcntl.LOCK_UN
            for _ in repeat(None, calls):
                flock(descriptor, exclusive)
                bucket.take()
                flock(descriptor, unlock)

        return loop

    return make


LOCKS: dict[str, Callable[[Bucket, str], Maker]] = {
    "multiprocessing.Lock": multiprocessing_lock,
    "posix_ipc.Semaphore": posix_semaphore,
    "fcntl.flock": file_lock,
}
