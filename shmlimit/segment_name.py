"""What a segment is called in /dev/shm, finished or still being made."""

from __future__ import annotations

import hashlib
import os
import re
import secrets

from shmlimit.errors import ConfigError

DIRECTORY = "/dev/shm"
NAME = re.compile(r"[A-Za-z0-9_.-]{1,200}", re.ASCII)
SHORT_NAME = re.compile(r"[A-Za-z0-9_.-]{0,20}~[0-9a-f]{8}", re.ASCII)
UID_NONE = 0xFFFFFFFF  # chown's "leave as it is"
KEPT_CHARACTERS = 64  # a longer name is shortened
SHORT_CHARACTERS = 30  # of a shortened POSIX name with its slash: macOS takes no more
DIGEST_CHARACTERS = 8


def segment_name(name: str, owner: int) -> str:
    """The POSIX name of a limiter's segment: one namespace a user, so that users do not meet by
    accident. A stranger's file of that name is refused when it is attached.

    `owner` is the uid of the workers. A name of more than 64 characters is shortened, always to the
    same: its beginning and a digest; the segment's header has it whole. What is short already, as a
    file is called, stays as it is. Raises ConfigError for a name that a file cannot bear, and for
    what is no uid.
    """
    if not isinstance(name, str) or not (NAME.fullmatch(name) or SHORT_NAME.fullmatch(name)):
        raise ConfigError(
            f"segment name {name!r}: accepted are 1 to 200 letters, digits, '_', '.' and '-'"
        )
    if not isinstance(owner, int) or isinstance(owner, bool) or not 0 <= owner < UID_NONE:
        raise ConfigError(
            f"owner {owner!r}: accepted is the number of a user, such as os.geteuid() or "
            f"pwd.getpwnam('www-data').pw_uid"
        )
    before = f"/shmlimit.{owner}."
    if len(name) <= KEPT_CHARACTERS:
        return before + name
    digest = hashlib.sha256(name.encode("ascii")).hexdigest()[:DIGEST_CHARACTERS]
    kept = SHORT_CHARACTERS - len(before) - len("~") - DIGEST_CHARACTERS
    return f"{before}{name[:kept]}~{digest}"


def temporary_name(posix_name: str) -> str:
    """A name that no segment can have, for one that is being made."""
    return f"{_temporary_prefix(posix_name)}{secrets.token_hex(8)}"


def _temporary_prefix(posix_name: str) -> str:
    return f"/shmlimit-tmp{posix_name.removeprefix('/shmlimit')}."


def temporaries(posix_name: str) -> list[str]:
    """The paths of what bears such a name for this segment."""
    ours = re.compile(re.escape(_temporary_prefix(posix_name)[1:]) + "[0-9a-f]{16}")
    return [entry.path for entry in os.scandir(DIRECTORY) if ours.fullmatch(entry.name)]


def has_name(path: str, inode: int) -> bool:
    """Whether the name is that file's. Its count of links does not tell: a creator that was killed
    may have left it a second one."""
    try:
        return os.lstat(path).st_ino == inode
    except FileNotFoundError:
        return False
