"""Every segment that /dev/shm bears, and what is left of those that were being made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shmlimit.errors import SegmentError, SegmentNotFound
from shmlimit.segment import DIRECTORY, NAME, UID_NONE
from shmlimit.segment_usage import Usage, mapping_pids, usage_of
from shmlimit.segment_view import viewed

_FILE = re.compile(rf"shmlimit\.(0|[1-9][0-9]{{0,9}})\.({NAME.pattern})", re.ASCII)
_UNFINISHED = re.compile(
    rf"shmlimit-tmp\.(0|[1-9][0-9]{{0,9}})\.({NAME.pattern})\.[0-9a-f]{{16}}", re.ASCII
)


@dataclass(frozen=True)
class Listed:
    """One file. Numbers are None where the segment was refused, or is not finished."""

    name: str
    owner: int  # uid in the file's name
    path: str
    finished: bool  # False: it has its temporary name
    size_bytes: int
    keys: int | None = None
    limits: list[str] | None = None
    usage: Usage | None = None
    refused: str | None = None

    @property
    def state(self) -> str:
        if self.refused:
            return f"{self.usage}: {self.refused}" if self.usage else self.refused
        if self.finished:
            return str(self.usage or "nobody may see who uses it")
        if self.usage and self.usage.in_use:
            return "being made"
        return f"left by a creator that died: shmlimit remove --owner {self.owner} {self.name}"

    def as_json(self) -> dict[str, Any]:
        told = asdict(self)
        del told["usage"]
        in_use, pids = self.usage or (None, [])
        return told | {"in_use": in_use, "pids": pids, "state": self.state}


def listed(owner: int | None) -> list[Listed]:
    """The segments of that uid, or of all, by owner and name. Raises SegmentError when there is
    no directory to look at."""
    try:
        files = os.listdir(DIRECTORY)
    except OSError as error:
        raise SegmentError(
            f"{DIRECTORY} cannot be read: {error.strerror}; mount a tmpfs there"
        ) from None
    pids_by_file = mapping_pids()
    found = []
    for file, uid, name, finished in _named(files):
        if owner not in (None, uid):
            continue
        path = f"{DIRECTORY}/{file}"
        try:
            size_bytes = os.lstat(path).st_size
        except OSError:  # removed since
            continue
        usage = usage_of(path, pids_by_file)
        if finished:
            listed_one = _looked_at(name, uid, path, size_bytes, usage)
        else:
            listed_one = Listed(name, uid, path, False, size_bytes, usage=usage)
        if listed_one:
            found.append(listed_one)
    return sorted(found, key=lambda each: (each.owner, each.name, each.path))


def _named(files: list[str]) -> Iterator[tuple[str, int, str, bool]]:
    """(file, uid, name, finished) for each file that can be a segment's."""
    for file in files:
        for pattern, finished in ((_FILE, True), (_UNFINISHED, False)):
            match = pattern.fullmatch(file)
            if match and int(match[1]) < UID_NONE:
                yield file, int(match[1]), match[2], finished


def _looked_at(
    name: str, owner: int, path: str, size_bytes: int, usage: Usage | None
) -> Listed | None:
    try:
        with viewed(name, owner) as view:
            limits = view.table.names()
            return Listed(name, owner, path, True, size_bytes, view.keys, limits, usage)
    except SegmentNotFound:  # removed since
        return None
    except SegmentError as error:
        return Listed(name, owner, path, True, size_bytes, usage=usage, refused=str(error))
