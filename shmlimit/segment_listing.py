"""Every segment that /dev/shm bears, and what is left of those that were being made."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shmlimit.errors import SegmentError, SegmentNotFound
from shmlimit.segment_name import DIRECTORY, NAME, SHORT_NAME, UID_NONE
from shmlimit.segment_usage import MappedFile, Usage, mapped_files, usage_of
from shmlimit.segment_view import viewed_file

_OWNER_NAME = rf"\.(0|[1-9][0-9]{{0,9}})\.({NAME.pattern}|{SHORT_NAME.pattern})"
_FILE = re.compile(rf"shmlimit{_OWNER_NAME}", re.ASCII)
_UNFINISHED = re.compile(rf"shmlimit-tmp{_OWNER_NAME}\.[0-9a-f]{{16}}", re.ASCII)


@dataclass(frozen=True)
class Listed:
    """One segment. Numbers are None where it was refused, is not finished, or has no file."""

    name: str
    owner: int  # uid in the file's name
    path: str
    finished: bool  # False: it has its temporary name
    size_bytes: int
    keys: int | None = None
    limits: list[str] | None = None
    usage: Usage | None = None
    refused: str | None = None
    named: bool = True  # False: its name was removed, or is another segment's; no file shows it

    @property
    def state(self) -> str:
        if not self.named:
            return f"{self.usage}, under no name: they keep it, and nobody joins them; restart them"
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
    mapped = mapped_files()  # before the names: one that is made meanwhile must not look nameless
    try:
        files, device = os.listdir(DIRECTORY), os.stat(DIRECTORY).st_dev
    except OSError as error:
        raise SegmentError(
            f"{DIRECTORY} cannot be read: {error.strerror}; mount a tmpfs there"
        ) from None
    found = []
    for file, uid, name, finished in _named(files):
        path = f"{DIRECTORY}/{file}"
        try:
            status = os.lstat(path)
        except OSError:  # removed since
            continue
        usage = usage_of(path, mapped)
        mapped.pop((status.st_dev, status.st_ino), None)
        if owner not in (None, uid):
            continue
        if finished:
            listed_one = _looked_at(name, uid, path, status.st_size, usage)
        else:
            listed_one = Listed(name, uid, path, False, status.st_size, usage=usage)
        if listed_one:
            found.append(listed_one)
    # those of other devices have their names in other namespaces of mounts
    nameless = [mapped[file] for file in mapped if file[0] == device]
    found += [each for each in _nameless(nameless) if owner in (None, each.owner)]
    return sorted(found, key=lambda each: (each.owner, each.name, each.path))


def _nameless(mapped: list[MappedFile]) -> Iterator[Listed]:
    """Segments that have no name any more, as the processes show them that have them mapped."""
    for path, size_bytes, pids in mapped:
        directory, _, file = path.rpartition("/")
        for _, uid, name, _ in _named([file]) if directory == DIRECTORY else ():
            usage = Usage(True, pids)
            yield Listed(name, uid, path, True, size_bytes, usage=usage, named=False)


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
        with viewed_file(path.removeprefix(DIRECTORY), owner) as view:
            limits = view.table.names()
            return Listed(view.name, owner, path, True, size_bytes, view.keys, limits, usage)
    except SegmentNotFound:  # removed since
        return None
    except SegmentError as error:
        return Listed(name, owner, path, True, size_bytes, usage=usage, refused=str(error))
