"""What a source of the host count is. Users write one of their own by deriving from HostSource.

class Consul(HostSource):
    def read(self) -> Reading:
        ...                         # ask; raise SourceFailed("consul: ...: accepted: ...")
        return Reading(count, read_again_s=15)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from shmlimit.errors import SourceFailed
from shmlimit.rate import shown

COUNT_MAX = 1_000_000
"""A count above this is no count of hosts but a mistake."""

COUNT_ACCEPTED = f"a whole number from 1 to {COUNT_MAX}"


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source answered."""

    count: int  # hosts that share the limits, 1 to COUNT_MAX
    read_again_s: float  # seconds until it should be read again; infinity: it never changes


class HostSource(ABC):
    """Answers how many hosts there are. `read` and `close` are called by one thread at a time."""

    name: str = ""
    """The text that the configuration has for it, such as "dns:web.example.net"."""

    @abstractmethod
    def read(self) -> Reading:
        """Asks now; may take seconds, never forever. SourceFailed: there is no answer to rely on.

        The last good count stands then, so that no answer is better than half of one.
        """

    def watch(self, changed: Callable[[], None]) -> None:  # noqa: B027
        """From now on `changed` is called when a reading may have changed, by any thread and as
        often as there are events. It must return at once: it sets a flag, and whoever reads waits
        a moment, clears the flag and then reads, so that a thousand events lead to few readings
        and the last one comes after the last event. What cannot tell never calls it."""

    def close(self) -> None:  # noqa: B027
        """Gives back what the source holds: threads, descriptors. It is not read again."""


def checked_count(value: object, place: str) -> int:
    """`value`, if it is a count of hosts. SourceFailed, beginning with `place`: it is not."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= COUNT_MAX:
        return int(value)
    raise SourceFailed(f"{place}: {shown(value)} is no count of hosts; accepted: {COUNT_ACCEPTED}")
