"""Limits in front of a WSGI application: 429 for what a limit refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shmlimit._core import Decision, Limit
from shmlimit.errors import ConfigError
from shmlimit.http.keys import KeyFunction, key_function
from shmlimit.limiter import Limiter

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger("shmlimit")

DECISIONS = "shmlimit.decisions"  # in environ: the Decisions on this request, a tuple
NS_PER_S = 1_000_000_000


class RateLimitMiddleware:
    """Puts every request to the limits that have a `key`; the application sees what all allow.

    A refusal is answered with 429, Retry-After and one line of text. It takes nothing from any
    limit, unless a limit's answer changes between the look at it and the hit, because another
    process took its last cell or one became free: then a cell may be lost on a refused request.

    A failure of shmlimit lets the request pass. Each kind of failure is logged once a process, to
    the logger "shmlimit".

    - limiter: None opens the one of shmlimit.toml, or takes the one that this process opened or
      inherited already: under gunicorn the master's

    Raises what Limiter.from_config raises, and ConfigError when no limit has a `key`.
    """

    def __init__(self, app: WSGIApplication, limiter: Limiter | None = None) -> None:
        self.app = app
        if not isinstance(limiter, Limiter | None):
            raise TypeError(f"limiter: accepted is a shmlimit.Limiter or None, not {limiter!r}")
        self.limiter = Limiter.from_config() if limiter is None else limiter
        keyed = [(limit, limit.key) for limit in self.limiter.config.limits if limit.key]
        if not keyed:
            where = self.limiter.config.path or f"limiter {self.limiter.name!r}"
            raise ConfigError(
                f'{where}: no limit has a key, so no request would be limited; give one key = "ip"'
            )
        self._limits: list[tuple[Limit, KeyFunction]] = [
            (self.limiter[limit.name], key_function(key)) for limit, key in keyed
        ]
        self._failures: set[type[Exception]] = set()  # kinds that were logged

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        try:
            decisions = self._decide(environ)
        except Exception as error:
            self._log_once(error)
            decisions = ()
        environ[DECISIONS] = decisions
        if all(decisions):
            return self.app(environ, start_response)
        return _refuse(decisions, environ, start_response)

    def _decide(self, environ: WSGIEnvironment) -> tuple[Decision, ...]:
        """The decisions of all limits, or of those that refuse."""
        if len(self._limits) == 1:
            limit, key_of = self._limits[0]
            return (limit.hit(key_of(environ)),)
        requests = []
        for limit, key_of in self._limits:
            key = key_of(environ)
            requests.append((limit.peek(key).allowed, limit, key))
        # Those that would refuse are hit first, while nothing has been taken from the others.
        requests.sort(key=lambda request: request[0])
        decisions: list[Decision] = []
        for would_allow, limit, key in requests:
            if would_allow and not all(decisions):
                break
            decisions.append(limit.hit(key))
        return tuple(decisions)

    def _log_once(self, error: Exception) -> None:
        if type(error) not in self._failures:
            self._failures.add(type(error))
            log.error(
                "requests pass unlimited: %s: %s (further ones of this kind are not logged)",
                type(error).__name__, error, exc_info=error,
            )  # fmt: skip


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
