"""package.module:callable, a count from code of the user's own."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable

from shmlimit.errors import ConfigError, SourceFailed
from shmlimit.hosts.source import HostSource, Reading, checked_count
from shmlimit.rate import shown

_ACCEPTED = "a callable without arguments that returns an int, or a HostSource (class or object)"


class ImportedSource(HostSource):
    """Keeps what the user's code raises or returns from going further than a SourceFailed."""

    def __init__(self, path: str, read_again_s: float) -> None:
        """ConfigError: nothing that can be used is found at `path`, checked by parse_source."""
        self.name = path
        self._read_again_s = read_again_s
        self._asked = self._found(path)

    def read(self) -> Reading:
        try:
            answer = self._asked.read() if isinstance(self._asked, HostSource) else self._asked()
        except SourceFailed:
            raise
        except Exception as error:
            raise SourceFailed(f"{self.name}: raised {_told(error)}; accepted: an int") from error
        if not isinstance(self._asked, HostSource):
            return Reading(checked_count(answer, self.name), self._read_again_s)
        if not isinstance(answer, Reading):
            raise SourceFailed(f"{self.name}: read {shown(answer)}; accepted: a Reading")
        wait_s = answer.read_again_s
        if not isinstance(wait_s, int | float) or math.isnan(wait_s) or wait_s <= 0:
            raise SourceFailed(
                f"{self.name}: read_again_s is {shown(wait_s)}; accepted: seconds, more than 0"
            )
        return Reading(checked_count(answer.count, self.name), wait_s)

    def watch(self, changed: Callable[[], None]) -> None:
        if isinstance(self._asked, HostSource):
            self._asked.watch(changed)

    def close(self) -> None:
        if isinstance(self._asked, HostSource):
            self._asked.close()

    @staticmethod
    def _found(path: str) -> HostSource | Callable[[], object]:
        module_name, _, attributes = path.partition(":")
        try:
            found: object = importlib.import_module(module_name)
        except Exception as error:  # whatever the module's own code raises
            raise ConfigError(
                f"source: {path!r}: importing {module_name} raised {_told(error)}; accepted: a "
                "module that can be imported from where the agent runs (sys.path)"
            ) from error
        for attribute in attributes.split("."):
            if not hasattr(found, attribute):
                raise ConfigError(f"source: {path!r}: has no {attribute!r}; accepted: {_ACCEPTED}")
            found = getattr(found, attribute)
        if isinstance(found, type) and issubclass(found, HostSource):
            try:
                return found()
            except Exception as error:
                raise ConfigError(f"source: {path!r}: making it raised {_told(error)}") from error
        if isinstance(found, HostSource) or callable(found):
            return found
        raise ConfigError(f"source: {path!r}: is {shown(found)}; accepted: {_ACCEPTED}")


def _told(error: Exception) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__} ({shown(text)})" if text else type(error).__name__
