"""The duty of the limits: a change of shmlimit.toml becomes what the table runs by."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shmlimit.config import Config
from shmlimit.errors import ConfigError, TooManyLimits
from shmlimit.hosts.settings import HostsConfig
from shmlimit.publication import Replace
from shmlimit.regular_file import UnreadableFile, content_of, printable
from shmlimit.reloading import reload
from shmlimit.segment import Segment

if TYPE_CHECKING:
    from shmlimit.hosts.file_watch import FileWatch

log = logging.getLogger("shmlimit")

REREAD_S = 5.0  # for changes that no event tells of
_BYTES_MAX = 1 << 20


class LimitsDuty:
    """`turn` is to be called by one thread. A file that is not accepted changes nothing: the limits
    stand, and log and table say why."""

    def __init__(
        self,
        segment: Segment,
        runs: Config,
        configure: Callable[[HostsConfig], None],
        wake: Callable[[], None],
    ) -> None:
        """`runs` has come from a file. `configure` is told of [hosts]; `wake` has to lead to a turn
        soon."""
        assert runs.path is not None, "an agent has a file"
        self._segment = segment
        self._runs = runs
        self._path: Path = runs.path
        self._configure = configure
        self._wake = wake
        self._content: bytes | str | None = None  # seen last; a str is why it could not be read
        self._watch: FileWatch | None = None

    def turn(self, now: float) -> float:
        """Loads the file if it is another than before. Returns when the next turn is due."""
        first = self._content is None
        if self._segment.table.hosts.divide():
            log.warning("the shares were divided anew: a change of the count had been cut short")
        self._refresh_watch()
        content = self._read()
        if content != self._content:
            self._load(first)
            self._content = content
        return now + REREAD_S

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _load(self, first: bool) -> None:
        """What was set by hand ends when the file changes, not when another agent begins."""
        try:
            replace: Replace = "file" if first else "by hand"
            self._runs = reload(self._segment, self._runs, self._path, replace)
        except (ConfigError, TooManyLimits) as error:
            log.error("the limits stay as they are; correct this: %s", error)
            return
        if not first:
            log.info("%s was loaded again", printable(self._path))
        self._configure(self._runs.hosts)

    def _read(self) -> bytes | str:
        try:
            return content_of(self._path, _BYTES_MAX)
        except UnreadableFile as fault:
            return str(fault)

    def _refresh_watch(self) -> None:
        if self._watch is None:
            from shmlimit.hosts.file_watch import FileWatch  # imports watchdog

            self._watch = FileWatch(self._path, self._wake)
        self._watch.refresh()
