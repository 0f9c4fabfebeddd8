"""The application: two lines, and the middleware around them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from wsgiref.types import StartResponse, WSGIEnvironment

from shmlimit import Config, Limiter
from shmlimit.http.wsgi import RateLimitMiddleware


def hello(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    body = f"hello from worker {os.getpid()}\n".encode()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]


def own_limiter() -> Limiter:
    """The control: a limiter that no other worker can find, as one in a worker's memory."""
    limits = {limit.name: limit for limit in Config.load(Config.find()).limits}
    limiter = Limiter(f"demo-worker-{os.getpid()}", keys=1000, **limits)  # type: ignore[arg-type]
    limiter.path.unlink()
    return limiter


if "DEMO_BROKEN" in os.environ:
    app = RateLimitMiddleware(hello, own_limiter())
else:
    app = RateLimitMiddleware(hello)
