"""static:N, a count that is written down."""

from __future__ import annotations

import math

from shmlimit.hosts.source import HostSource, Reading


class StaticSource(HostSource):
    """Always answers the same."""

    def __init__(self, count: int) -> None:
        self.name = f"static:{count}"
        self._count = count

    def read(self) -> Reading:
        return Reading(self._count, math.inf)
