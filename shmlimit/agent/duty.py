"""A duty: a thread of the agent that takes turns at one piece of work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger("shmlimit")

CALM_S = 0.05  # after a wake-up, so that a thousand of them lead to few turns
FAILED_S = 5.0  # after a turn that raised
_WAIT_MOST_S = 3600.0


class Duty(threading.Thread):
    """Calls `turn(now)` at once, whenever it was woken, and at the time that a turn has returned.
    Times are seconds of time.monotonic().

    A turn that raises is logged, each kind of failure once, and repeated later: an agent that does
    a part of its work is better than none.
    """

    def __init__(self, name: str, turn: Callable[[float], float]) -> None:
        super().__init__(name=name, daemon=True)
        self._turn = turn
        self._woken = threading.Event()
        self._told: set[str] = set()

    def wake(self) -> None:
        """May be called by any thread, as often as it likes."""
        self._woken.set()

    def run(self) -> None:
        wait_s = 0.0
        while True:
            if self._woken.wait(min(wait_s, _WAIT_MOST_S)):
                time.sleep(CALM_S)
                self._woken.clear()  # before the turn: what changes during it leads to another
            wait_s = self.guarded_turn(time.monotonic()) - time.monotonic()

    def guarded_turn(self, now: float) -> float:
        try:
            return self._turn(now)
        except Exception as error:
            kind = f"{type(error).__name__}: {error}"
            if kind not in self._told:
                self._told.add(kind)
                log.exception("agent: %s failed and is tried again", self.name)
            return now + FAILED_S
