"""Tells when a path may lead to other content than before, by watchdog's inotify observer."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver, ObservedWatch

from shmlimit.hosts.link_trail import link_trail
from shmlimit.regular_file import printable

log = logging.getLogger("shmlimit")

# Not that a file was opened or read: our own reading would call for the next.
_EVENTS: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]

# A link that is swapped while its directory is not yet watched leads to one that is not.
_PASSES = 3


class _Watched(NamedTuple):
    watch: ObservedWatch
    inode: tuple[int, int]  # of the directory: another one may take its name
    handler: _Handler


class FileWatch:
    """Watches the directories of the path's link trail, none of what lies below them.

    `refresh` has to be called before each reading: then nothing that happens after the reading is
    missed, and a directory that was made anew, or a link that leads elsewhere, is followed. What
    cannot be watched is left to the readings that come anyway, and tried again at each.
    """

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self._path = path
        self._changed = changed
        self._observer: BaseObserver | None = None
        self._watched: dict[str, _Watched] = {}
        self._troubled = False  # and told so

    def refresh(self) -> None:
        """Watches what decides about the path now. Never raises."""
        try:
            trail: dict[str, set[str]] = {}
            for _ in range(_PASSES):
                before, trail = trail, link_trail(self._path)
                if trail == before:
                    break
                self._watch(trail)
        except Exception as error:  # OSError: no inotify instance, watch, thread or descriptor left
            if not self._troubled:
                log.warning(
                    "%s cannot be watched (%s): its changes are seen some seconds later, when it "
                    "is read again; if inotify ran out, raise fs.inotify.max_user_instances or "
                    "max_user_watches",
                    printable(self._path),
                    error,
                )
            self._troubled = True
        else:
            self._troubled = False

    def close(self) -> None:
        observer, self._observer = self._observer, None
        self._watched.clear()
        if observer is not None:
            observer.stop()
            observer.join()

    def _watch(self, trail: dict[str, set[str]]) -> None:
        if self._observer is None:
            observer = Observer()
            observer.start()
            self._observer = observer
        for directory in list(self._watched):
            watched = self._watched[directory]
            stale = watched.handler.gone or _inode(directory) != watched.inode
            if stale or directory not in trail:
                del self._watched[directory]
                self._observer.unschedule(watched.watch)
        for directory, names in trail.items():
            inode = _inode(directory)
            if directory in self._watched:
                self._watched[directory].handler.names = names
            elif inode is not None:
                handler = _Handler(directory, names, self._changed)
                watch = self._observer.schedule(handler, directory, event_filter=_EVENTS)
                self._watched[directory] = _Watched(watch, inode, handler)


class _Handler(FileSystemEventHandler):
    """Runs on the observer's thread, which an exception would end."""

    def __init__(self, directory: str, names: set[str], changed: Callable[[], None]) -> None:
        self._directory = directory
        self.names = names  # replaced as a whole, by the thread that reads
        self.gone = False  # the directory; another one may have its name, and even its inode number
        self._changed = changed

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            if (
                isinstance(event, DirDeletedEvent)
                and os.fsdecode(event.src_path) == self._directory
            ):
                self.gone = True
            if self._concerns(event.src_path) or self._concerns(event.dest_path):
                self._changed()
        except Exception:
            log.exception("hosts: what was to be told of a change in %s failed", self._directory)

    def _concerns(self, path: bytes | str) -> bool:
        text = os.fsdecode(path)
        return text == self._directory or os.path.basename(text) in self.names


def _inode(directory: str) -> tuple[int, int] | None:
    """None: it is no directory, or not any more."""
    try:
        status = os.stat(directory)
    except OSError:
        return None
    return status.st_dev, status.st_ino
