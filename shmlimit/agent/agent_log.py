"""Where an agent's log goes: to the server's, in the format of gunicorn's error log."""

from __future__ import annotations

import logging
import sys
from logging.handlers import WatchedFileHandler

FORMAT = "%(asctime)s [%(process)d] [%(levelname)s] shmlimit: %(message)s"
TIME_FORMAT = "[%Y-%m-%d %H:%M:%S %z]"

_log = logging.getLogger("shmlimit")


def install(file: str | None, level: str) -> None:
    """`file` is opened anew when it was moved away, as by logrotate; None is standard error."""
    logging.raiseExceptions = False  # there is nobody to hear of a log that cannot be written
    handler, fault = _handler(file)
    handler.setFormatter(logging.Formatter(FORMAT, TIME_FORMAT))
    _log.addHandler(handler)
    _log.propagate = False
    _log.setLevel(level.upper() if level.upper() in logging.getLevelNamesMapping() else "INFO")
    if fault is not None:
        _log.warning("agent: %s cannot be written (%s): this log goes to stderr", file, fault)


def _handler(file: str | None) -> tuple[logging.Handler, OSError | None]:
    if file is None:
        return logging.StreamHandler(sys.stderr), None
    try:
        return WatchedFileHandler(file), None
    except OSError as error:
        return logging.StreamHandler(sys.stderr), error
