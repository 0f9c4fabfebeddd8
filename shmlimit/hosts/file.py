"""file:PATH, a count that somebody keeps in a file.

    3                       one whole number

    # or one host a line; a host that is there twice counts once
    web-1.example.net
    10.0.0.7                # the same host as ::ffff:10.0.0.7

Blank lines, comments, CRLF and a byte order mark are fine. Anything else is refused as a whole:
half a list would multiply every share.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shmlimit.errors import SourceFailed
from shmlimit.hosts.source import COUNT_MAX, HostSource, Reading, checked_count
from shmlimit.rate import shown
from shmlimit.regular_file import UnreadableFile, content_of, printable

if TYPE_CHECKING:
    from shmlimit.hosts.file_watch import FileWatch

_BYTES_MAX = 4 << 20
_ACCEPTED = f"one whole number from 1 to {COUNT_MAX}, or one host name or address a line"
_LINE_END = re.compile(r"\r\n|\r|\n")
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_HOST_NAME_CHARACTERS_MAX = 253
_NUMERIC = re.compile(r"[0-9][0-9_]*(e[0-9]+)?|.*\.[0-9]*")
_DIGITS = re.compile(r"[0-9]+")


class FileSource(HostSource):
    """The number, or the number of distinct hosts, that the file has."""

    def __init__(self, path: str, reread_s: float) -> None:
        self.name = f"file:{path}"
        self._path = Path(path)
        self._reread_s = reread_s
        self._watch: FileWatch | None = None

    def read(self) -> Reading:
        if self._watch is not None:
            self._watch.refresh()
        return Reading(self._count(), self._reread_s)

    def watch(self, changed: Callable[[], None]) -> None:
        from shmlimit.hosts.file_watch import FileWatch  # imports watchdog

        self._watch = FileWatch(self._path, changed)
        self._watch.refresh()

    def close(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _count(self) -> int:
        name = printable(self._path)
        try:
            content = content_of(self._path, _BYTES_MAX)
        except UnreadableFile as fault:
            remedy = fault.remedy or f"accepted: a file with {_ACCEPTED}"
            raise SourceFailed(f"{name}: {fault}; {remedy}") from None
        try:
            text = content.decode("utf-8-sig")  # some editors write a byte order mark
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise SourceFailed(
                f"{name}: is not UTF-8: byte 0x{content[error.start]:02x} in line {line}; "
                f"accepted: {_ACCEPTED}"
            ) from None
        return _count_in(text, name)


def _count_in(text: str, name: str) -> int:
    """SourceFailed, beginning with `name`: the text is no count and no list of hosts."""
    entries = []
    for number, line in enumerate(_LINE_END.split(text), 1):
        entry = line.partition("#")[0].strip(" \t")
        if entry:
            entries.append((number, entry))
    if not entries:
        raise SourceFailed(f"{name}: is empty; accepted: {_ACCEPTED}")
    if len(entries) == 1 and _DIGITS.fullmatch(entries[0][1]) and len(entries[0][1]) <= 20:
        return checked_count(int(entries[0][1]), name)
    hosts = set()
    for number, entry in entries:
        host = _host(entry)
        if host is None:
            raise SourceFailed(f"{name}: line {number}: {shown(entry)}; accepted: {_ACCEPTED}")
        hosts.add(host)
    return checked_count(len(hosts), name)


def _host(entry: str) -> str | None:
    """The one spelling of a host, or None when it is none."""
    try:
        address = ipaddress.ip_address(entry)
    except ValueError:
        name = entry.removesuffix(".").lower()
        if len(name) > _HOST_NAME_CHARACTERS_MAX or not _HOST_NAME.fullmatch(name):
            return None
        # "3.0" and "10.0.0.256" look like names, but no name's last label is a number.
        return None if _NUMERIC.fullmatch(name) else name
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)
