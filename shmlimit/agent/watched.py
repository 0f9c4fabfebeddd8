"""A process whose end is to be noticed, by somebody who is not its parent."""

from __future__ import annotations

import os
from contextlib import suppress

from shmlimit.agent.spec import ProcessId
from shmlimit.process import process_lives


class WatchedProcess:
    """Not PR_SET_PDEATHSIG: that is sent when the thread ends that made the process, and forgotten
    when the process changes its user."""

    def __init__(self, process: ProcessId) -> None:
        self.process = process
        self.descriptor: int | None = None
        """Becomes readable when it ends; None where the kernel has no pidfd_open, or refuses it."""
        with suppress(OSError, AttributeError):
            self.descriptor = os.pidfd_open(process.pid)

    def ended(self) -> bool:
        return not process_lives(self.process.pid, self.process.start_ticks)

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
