"""The duty of the host count: source -> reading -> count -> shares in the table."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from shmlimit._core import Table
from shmlimit.errors import ConfigError, SourceFailed
from shmlimit.hosts.count import HostCount
from shmlimit.hosts.scheme import source_of
from shmlimit.hosts.settings import HostsConfig
from shmlimit.hosts.source import HostSource
from shmlimit.publication import warn_of_thin_shares

log = logging.getLogger("shmlimit")

_MAKE_AGAIN_S = 10.0  # a source that could not be made
_NEVER_S = float("inf")


class HostsDuty:
    """`configure` may be called by any thread; `turn` by one."""

    def __init__(self, table: Table, wake: Callable[[], None]) -> None:
        """`wake` has to lead to a turn soon."""
        self._table = table
        self._wake = wake
        self._wanted: HostsConfig | None = None
        self._settings: HostsConfig | None = None  # what the following are of
        self._source: HostSource | None = None
        self._count: HostCount | None = None

    def configure(self, settings: HostsConfig) -> None:
        """From the next turn on. The table follows that source already."""
        self._wanted = settings
        self._wake()

    def turn(self, now: float) -> float:
        """Reads the source once. Returns when the next turn is due."""
        wanted = self._wanted
        if wanted is None:
            return _NEVER_S
        if wanted != self._settings or self._source is None:
            self._begin(wanted)
        if self._source is None or self._count is None:
            return now + _MAKE_AGAIN_S
        self._read(now, self._source, self._count)
        return self._count.next_read_at_s

    def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _begin(self, settings: HostsConfig) -> None:
        """The count goes on from what the table has, read or assumed."""
        again = settings == self._settings
        self.close()
        self._settings = settings
        state = self._table.hosts.state()
        counted = settings.clamped(state.counted)
        if state.origin == "read" and state.source == settings.source[: len(state.source)]:
            self._count = HostCount(settings, applied=counted)
        else:
            self._count = HostCount(dataclasses.replace(settings, fallback=counted))
        try:
            self._source = source_of(settings)
        except ConfigError as error:
            if not again:
                log.error("hosts: %s; the count stays %d", error, counted)
            self._table.hosts.failed(str(error))
        else:
            self._source.watch(self._wake)

    def _read(self, now: float, source: HostSource, count: HostCount) -> None:
        try:
            reading = source.read()
        except SourceFailed as error:
            count.failed(now, str(error))
            self._table.hosts.failed(str(error))
        else:
            count.read(now, reading)
            if self._table.hosts.read(count.count, reading.count):
                warn_of_thin_shares(self._table)
