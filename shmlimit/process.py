"""Who a process is: its start time and its namespaces, from /proc.

A pid alone names nobody: it is used again after its process has gone, and means another process in
another pid namespace.
"""

from __future__ import annotations

import os


def process_start_ticks(pid: int) -> int | None:
    """When a live process started, in kernel clock ticks since boot; None when there is none, or
    none that this user may see.

    A zombie counts as gone: it will never run again.
    """
    try:
        line = _stat(pid)
    except OSError:
        return None
    return _start_ticks(line)


def process_lives(pid: int, start_ticks: int) -> bool:
    """Whether the process that started then still runs. True when that cannot be found out."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs as another user, and /proc may hide it
    try:
        line = _stat(pid)
    except OSError:
        return True
    return _start_ticks(line) == start_ticks


def _stat(pid: int) -> bytes:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read()


def _start_ticks(line: bytes) -> int | None:
    # The second field is the command in parentheses and may itself hold spaces and parentheses.
    fields = line[line.rindex(b")") + 2 :].split()
    state, start_ticks = fields[0], fields[19]
    return None if state in (b"Z", b"X", b"x") else int(start_ticks)


def namespace_inode(kind: str) -> int:
    """The inode of this process's namespace ("pid", "time"); 0 where the kernel has none."""
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return 0


def boot_id() -> bytes:
    """The 16 bytes that the kernel drew at boot; zeros where they cannot be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return bytes.fromhex(file.read().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)
