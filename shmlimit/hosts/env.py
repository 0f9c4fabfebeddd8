"""env:VARIABLE, a count that whoever starts the process knows."""

from __future__ import annotations

import math
import os

from shmlimit.errors import SourceFailed
from shmlimit.hosts.source import COUNT_ACCEPTED, HostSource, Reading, checked_count
from shmlimit.rate import shown


class EnvSource(HostSource):
    """Reads the variable of its own process, which nobody changes from outside: once is enough."""

    def __init__(self, variable: str) -> None:
        self.name = f"env:{variable}"
        self._variable = variable

    def read(self) -> Reading:
        text = os.environ.get(self._variable)
        if text is None:
            raise SourceFailed(f"${self._variable}: is not set; accepted: {COUNT_ACCEPTED}")
        digits = text.strip(" \t\r\n")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 20:
            raise SourceFailed(f"${self._variable}: {shown(text)}; accepted: {COUNT_ACCEPTED}")
        return Reading(checked_count(int(digits), f"${self._variable}"), math.inf)
