"""What shmlimit logs goes to gunicorn's error log while an application has set up no logging."""

from __future__ import annotations

import logging

_log = logging.getLogger("shmlimit")


class ServerLog(logging.Handler):
    """Without it such records would go to stderr, which a daemon does not have."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.root.handlers and _log.handlers == [self]:
            logging.getLogger("gunicorn.error").handle(record)

    @classmethod
    def install(cls) -> None:
        """Once a process; those forked from it have it too."""
        if not any(isinstance(handler, cls) for handler in _log.handlers):
            _log.addHandler(cls())
