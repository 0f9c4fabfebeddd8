"""A /dev/shm too small, full or not writable: an error with the remedy, never a SIGBUS.

Each test mounts a small file system on /dev/shm, in a mount namespace that ends with it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

MOUNT = "mount -t tmpfs -o {options} shmlimit-test /dev/shm && exec"
FULL = """
import os, shmlimit
from shmlimit.errors import NotEnoughMemory
try:
    shmlimit.Limiter("big", keys={keys}, workers=8, a="1/s")
except NotEnoughMemory as error:
    print(error)
print(os.listdir("/dev/shm"))
"""
SMALL_AFTERWARDS = """
with shmlimit.Limiter("small", keys=1000, workers=8, a="1/s") as limiter:
    print(limiter["a"].hit("x").allowed)
print(os.listdir("/dev/shm"))
"""
FIRST = """
import shmlimit
first = shmlimit.Limiter("first", keys=70_000, workers=8, a="1/s")
"""
FIRST_AFTERWARDS = """
print(first["a"].hit("x").allowed)
first.close()
print(os.listdir("/dev/shm"))
"""
ALL_TOUCHED = """
import os, shmlimit
with shmlimit.Limiter("most", keys=60_000, workers=8, a="1/h", b="1/h") as limiter:
    with open("/dev/shm/filler", "wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)) == 4096:
                pass
        except OSError as error:
            print(error.strerror)
    for start in range(0, 300_000, 10_000):
        for name in ("a", "b"):
            limiter[name].hit_many([str(key) for key in range(start, start + 10_000)])
    report = limiter.check()
    print(report.unused < 0.01 * report.slots, report.limits)
"""


@cache
def namespace() -> tuple[str, ...] | None:
    """The command that gives a mount namespace of one's own; None where that is not allowed."""
    for command in (("unshare", "-m"), ("unshare", "-rm")):
        try:
            done = subprocess.run(
                [*command, "sh", "-c", f"{MOUNT.format(options='size=4m')} true"],
                capture_output=True,
                timeout=30,
            )
        except FileNotFoundError:
            return None
        if done.returncode == 0:
            return command
    return None


def printed(program: str, options: str = "size=4m") -> list[str]:
    """What a program prints whose /dev/shm is mounted so; else 4 MiB small."""
    command = namespace()
    if command is None:
        pytest.skip("no mount namespace can be made here (unshare and mount are not allowed)")
    done = subprocess.run(
        [
            *command,
            "sh",
            "-c",
            f'{MOUNT.format(options=options)} "$0" -c "$1"',
            sys.executable,
            program,
        ],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.splitlines()


def test_a_small_shm_is_named_with_the_remedy_and_nothing_is_left() -> None:
    message, left, allowed, nothing = printed(FULL.format(keys=1_000_000) + SMALL_AFTERWARDS)
    told = re.fullmatch(
        r"segment /shmlimit\.(\d+)\.big needs ([\d.]+) MiB of /dev/shm, which has ([\d.]+) MiB "
        r"free: lower `keys`, or enlarge /dev/shm \(Docker: --shm-size=(\d+)m; Kubernetes: an "
        r"emptyDir volume with medium: Memory and a sizeLimit, mounted at /dev/shm\)",
        message,
    )
    assert told
    uid, needed_mib, free_mib, docker_mib = told.groups()
    assert int(uid) == os.geteuid()
    assert 30.5 < float(needed_mib) < 31, "32 bytes a key, and counters"
    assert 3.9 < float(free_mib) <= 4
    assert int(docker_mib) > float(needed_mib)
    assert [left, allowed, nothing] == ["[]", "True", "[]"]


def test_a_little_too_much_is_refused_too() -> None:
    message, left = printed(FULL.format(keys=128_000))
    assert "needs 4.1 MiB of /dev/shm, which has 4.0 MiB free" in message
    assert left == "[]"


def test_whoever_fills_shm_later_takes_nothing_from_a_segment() -> None:
    assert printed(ALL_TOUCHED) == ["No space left on device", "True 2"]


def test_a_second_segment_that_does_not_fit_leaves_the_first_alone() -> None:
    message, left, allowed, nothing = printed(FIRST + FULL.format(keys=70_000) + FIRST_AFTERWARDS)
    assert "segment /shmlimit" in message
    assert left == f"['shmlimit.{os.geteuid()}.first']"
    assert [allowed, nothing] == ["True", "[]"]


REFUSED = """
import os, shmlimit
os.setuid({uid})
try:
    shmlimit.Limiter("any", keys=100, a="1/s")
except shmlimit.SegmentError as error:
    print(error)
"""


@pytest.mark.parametrize(("options", "uid"), [("ro", 0), ("mode=700", 12345), ("mode=755", 12345)])
def test_a_shm_that_cannot_be_written_to_is_named(options: str, uid: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    (message,) = printed(REFUSED.format(uid=uid), options)
    assert message.startswith(f"segment /shmlimit.{uid}.any cannot be made or opened: ")
    assert f"/dev/shm must be a directory that uid {uid} may write to" in message
