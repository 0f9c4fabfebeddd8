"""Who a process is: its start time and its namespaces, from /proc.

A pid alone names nobody: it is used again after its process has gone, and means another process in
another pid namespace.
"""

from __future__ import annotations

import os


def process_start_ticks(pid: int) -> int | None:
    """When a live process started, in kernel clock ticks since boot; None when there is none.

    A zombie counts as gone: it will never run again.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return None
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
