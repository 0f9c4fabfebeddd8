"""Limits in front of a WSGI application: 429 for what a limit refuses."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shmlimit._core import Decision
from shmlimit.config import Config
from shmlimit.errors import ConfigError, LimitRemoved, SegmentError, TooManyLimits
from shmlimit.http.keys import KeyFunction, key_function
from shmlimit.limiter import Limiter

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger("shmlimit")

DECISIONS = "shmlimit.decisions"  # in environ: the Decisions on this request; () after a failure
NS_PER_S = 1_000_000_000


class RateLimitMiddleware:
    """Puts every request to the limits that have a `key`; the application sees what all allow.

    A refusal is answered with 429, Retry-After and one line of text. It takes nothing from any
    limit, unless a limit's answer changes between the look at it and the hit, because another
    process took its last cell or one became free: then a cell may be lost on a refused request.

    A failure of shmlimit lets the request pass. Each kind of failure is logged once a process, to
    the logger "shmlimit".

    - limiter: None opens the one of shmlimit.toml, or takes the one that this process opened or
      inherited already: under gunicorn the master's. A gunicorn worker that has opened it itself
      logs a warning at its first request: it takes the limits along when it ends.

    A reload of the limiter counts from the next request on.

    When the limiter cannot be opened, that is logged, and the requests of this process pass. Raises
    ConfigError for a configuration that is not accepted, and when no limit has a `key`.
    """

    def __init__(self, app: WSGIApplication, limiter: Limiter | None = None) -> None:
        self.app = app
        if not isinstance(limiter, Limiter | None):
            raise TypeError(f"limiter: accepted is a shmlimit.Limiter or None, not {limiter!r}")
        self._failures: set[type[Exception]] = set()  # kinds that were logged
        self.limiter = self._opened() if limiter is None else limiter
        self._limits = _limits_with_key(self.limiter) if self.limiter else []
        self._config: Config | None = None  # what _limits were made from; None before any request

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            decisions = self._decide(environ, self.limiter) if self.limiter else ()
        except Exception as error:
            self._log_once(error)
            decisions = ()
        environ[DECISIONS] = decisions
        if all(decisions):
            return self.app(environ, start_response)
        return _refuse(decisions, environ, start_response)

    def _opened(self) -> Limiter | None:
        """A server must not fail to start its workers for want of a limiter."""
        try:
            return Limiter.from_config()
        except (SegmentError, TooManyLimits) as error:
            self._log_once(error)
            return None

    def _follow(self, limiter: Limiter) -> None:
        """Takes over what the limiter's configuration says: it changes at a reload."""
        before, self._config = self._config, limiter.config
        self._limits = _limits_with_key(limiter)
        gunicorn = os.environ.get("SERVER_SOFTWARE", "").startswith("gunicorn/")
        if before is None and gunicorn and not limiter.inherited:
            # without logging set up: stderr, which a daemon does not have
            told = log if log.hasHandlers() else logging.getLogger("gunicorn.error")
            told.warning(
                "this gunicorn worker has opened segment %s itself: the limits start afresh "
                "whenever the last such worker has ended, and whichever starts last sets them. Let "
                "the master open it: `gunicorn -c python:gunicorn_hooks`, or `from gunicorn_hooks "
                "import *` in gunicorn.conf.py; a limiter of your own: make it with --preload",
                limiter.path,
            )

    def _decide(self, environ: WSGIEnvironment, limiter: Limiter) -> tuple[Decision, ...]:
        if limiter.follow() is not self._config:
            self._follow(limiter)
        asked = [(name, key_of(environ)) for name, key_of in self._limits]
        while asked:
            try:
                return limiter.hit_all(asked)
            except LimitRemoved as removed:
                # by a reload of the master, while this worker still has the configuration of before
                asked = [request for request in asked if request[0] != removed.name]
        return ()

    def _log_once(self, error: Exception) -> None:
        if type(error) not in self._failures:
            self._failures.add(type(error))
            log.error(
                "requests pass unlimited: %s: %s (further ones of this kind are not logged)",
                type(error).__name__, error, exc_info=error,
            )  # fmt: skip


def _limits_with_key(limiter: Limiter) -> list[tuple[str, KeyFunction]]:
    """By name: a limit that was removed since may be among them."""
    config = limiter.config
    keyed = [(limit.name, key_function(limit.key)) for limit in config.limits if limit.key]
    if not keyed:
        raise ConfigError(
            f"{config.path or f'limiter {limiter.name!r}'}: no limit has a key, so no request "
            f'would be limited; give one key = "ip"'
        )
    return keyed


def _refuse(
    decisions: tuple[Decision, ...], environ: WSGIEnvironment, start_response: StartResponse
) -> Iterable[bytes]:
    retry_after_ns = max(decision.retry_after_ns for decision in decisions if not decision)
    retry_after_s = max(-(-retry_after_ns // NS_PER_S), 1)  # whole seconds, rounded up
    body = f"Too many requests. Try again in {retry_after_s} s.\n".encode("ascii")
    headers = [
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("Retry-After", str(retry_after_s)),
    ]
    start_response("429 Too Many Requests", headers)
    return [] if environ.get("REQUEST_METHOD") == "HEAD" else [body]
