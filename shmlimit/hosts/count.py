"""The count of hosts that is enforced, from readings good and bad.

A count too large makes every share smaller than need be; one too small lets all hosts together pass
more than the limit. So a larger count applies at once, and a smaller one has to prove itself:

    enforced  =  the largest count that stood at any moment of the last `settle` seconds

where a good reading's count stands until the next reading, and at a failure the enforced count is
what stands: a failure confirms nothing, and the proof begins anew after it.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Literal

from shmlimit.hosts.settings import HostsConfig
from shmlimit.hosts.source import Reading

log = logging.getLogger("shmlimit")

_RETRY_S = 1.0  # after the first failure; doubled at each further one
_RETRY_MOST_S = 30.0
_JUST_AFTER_S = 0.05  # the end of `settle`, so that the reading then is surely not before it
_REASONS_TOLD_MAX = 8  # of one spell of failures


class HostCount:
    """A state machine: whoever reads the source tells it `now` and the outcome.

    `now` is in seconds, on any clock that does not go backwards. One thread at a time may use it.
    """

    def __init__(
        self,
        settings: HostsConfig,
        applied: int | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """`applied` is a count that was read before and is enforced now, as by an agent that this
        one takes over from: it stands as if it had been read here. None: nothing was read yet.
        `jitter` answers from 0 to 1, so that hosts do not all ask again at the same moment."""
        assert settings.fallback is not None, "HostsConfig sees to it"
        self._settings = settings
        self._jitter = jitter
        self._count = settings.clamped(settings.fallback if applied is None else applied)
        self._origin: Literal["source", "fallback"] = "fallback" if applied is None else "source"
        # (since when, the largest count that stood from then on), oldest first: as of a sliding
        # maximum, so each count is smaller than the one before. The first is the enforced one.
        self._stood: deque[tuple[float, int]] = deque()
        if applied is not None:
            self._stood.append((float("-inf"), self._count))
        self._good_at_s: float | None = None
        self._read_again_s = _RETRY_MOST_S
        self._failures = 0  # since the last good reading
        self._error: str | None = None
        self._error_since_s: float | None = None
        self._reasons_told: set[str] = set()
        self._next_read_at_s = float("-inf")

    @property
    def count(self) -> int:
        """Hosts to share by now, from `min` to `max`."""
        return self._count

    @property
    def origin(self) -> Literal["source", "fallback"]:
        """Whether the count was ever read, or is what is assumed until then."""
        return self._origin

    @property
    def error(self) -> str | None:
        """Why the last reading failed, or None when it was good."""
        return self._error

    @property
    def error_since_s(self) -> float | None:
        """When the first failure after the last good reading was, or None: the last was good."""
        return self._error_since_s

    @property
    def next_read_at_s(self) -> float:
        """When the source should be read next, if it does not call before. Infinity: never."""
        return self._next_read_at_s

    def age_s(self, now: float) -> float | None:
        """Seconds since the last good reading here, or None when there was none yet."""
        return None if self._good_at_s is None else max(0.0, now - self._good_at_s)

    def read(self, now: float, reading: Reading) -> bool:
        """Takes a good reading. Whether the enforced count changed by it."""
        if self._error is not None:
            log.info("hosts: %s answers again: %d", self._settings.source, reading.count)
        self._good_at_s = now
        self._read_again_s = reading.read_again_s
        self._failures = 0
        self._error = self._error_since_s = None
        self._reasons_told.clear()
        if self._origin == "fallback":
            self._stood.clear()
        self._stand(now, self._settings.clamped(reading.count))
        changed = self._apply(self._stood[0][1])
        self._next_read_at_s = now + reading.read_again_s
        if len(self._stood) > 1:  # a smaller one applies soon, if it still stands then
            proven_at_s = self._stood[1][0] + self._settings.settle
            self._next_read_at_s = min(self._next_read_at_s, proven_at_s + _JUST_AFTER_S)
        return changed

    def failed(self, now: float, reason: str) -> bool:
        """Takes the news that a reading failed. False: the enforced count never changes by it."""
        if self._error is None:
            self._error_since_s = now
        self._error = reason
        if reason not in self._reasons_told and len(self._reasons_told) < _REASONS_TOLD_MAX:
            self._reasons_told.add(reason)
            log.warning("hosts: %s; the count stays %d (%s)", reason, self._count, self._origin)
        self._stand(now, self._count)
        most_s = max(_RETRY_S, min(self._read_again_s, _RETRY_MOST_S))
        # A shift by more than a few places is `most_s` anyway; years of failures must not overflow.
        wait_s = min(_RETRY_S * (1 << min(self._failures, 10)), most_s)
        self._failures += 1
        self._next_read_at_s = now + wait_s * (0.5 + 0.5 * self._jitter())
        return False

    def _stand(self, now: float, count: int) -> None:
        """`count` stands from now on; what stood only before the last `settle` seconds is over."""
        since_s = now
        while self._stood and self._stood[-1][1] <= count:
            since_s, _ = self._stood.pop()
        self._stood.append((since_s, count))
        while len(self._stood) > 1 and self._stood[1][0] <= now - self._settings.settle:
            self._stood.popleft()

    def _apply(self, count: int) -> bool:
        first, self._origin = self._origin == "fallback", "source"
        changed, before = count != self._count, self._count
        self._count = count
        if changed or first:
            log.info("hosts: %d (before: %d), from %s", count, before, self._settings.source)
        return changed
