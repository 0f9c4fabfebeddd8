"""The entries of directories that decide which file a path leads to.

A file is replaced in more ways than by writing to it. Kubernetes swaps one link of a mounted
ConfigMap: /etc/shop/hosts -> ..data/hosts, and ..data -> ..2026_11_30; a deployment swaps
/srv/current. A watch on the file, or on its directory only, sees neither.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from pathlib import Path

_LINKS_MAX = 40  # as in the kernel


def link_trail(path: Path) -> dict[str, set[str]]:
    """directory -> names in it. When none of these entries changes, `path` leads to the same file.

    Directories are absolute and have no links in them. They are those of the links that are met on
    the way and that of the file, or of the first name on the way that is missing.
    """
    trail: dict[str, set[str]] = {}
    directory = "/"
    ahead = deque(_names(str(path)))
    links = 0
    while ahead:
        name = ahead.popleft()
        if name == "..":
            directory = os.path.dirname(directory)
            continue
        entry = os.path.join(directory, name)
        try:
            mode = os.lstat(entry).st_mode
            target = os.readlink(entry) if stat.S_ISLNK(mode) else None
        except (OSError, ValueError):  # missing, or may not be looked at
            mode, target = 0, None
        if target is not None:
            trail.setdefault(directory, set()).add(name)
            links += 1
            if links > _LINKS_MAX:
                break
            ahead.extendleft(reversed(_names(target)))
            directory = "/" if target.startswith("/") else directory
        elif stat.S_ISDIR(mode) and ahead:
            directory = entry
        else:
            trail.setdefault(directory, set()).add(name)
            break
    return trail


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]
