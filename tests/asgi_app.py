"""An ASGI application that asks the limiter itself: it opens it when it starts up, and closes it
when it shuts down, since some servers end their workers by a signal."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from shmlimit import Limiter

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

limiter: Limiter


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
        return
    limit = limiter["per_ip"]
    key = f"ip:{scope['client'][0]}"
    if scope["path"] == "/wait":
        decision = await limit.acquire_async(key, timeout=60)
    else:
        decision = limit.hit(key)
    await answer(send, 200 if decision else 429)


async def lifespan(receive: Receive, send: Send) -> None:
    global limiter
    assert (await receive())["type"] == "lifespan.startup"
    limiter = Limiter.from_config()
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.shutdown"
    limiter.close()
    await send({"type": "lifespan.shutdown.complete"})


async def answer(send: Send, status: int) -> None:
    body = f"hello from worker {os.getpid()}\n".encode()
    headers = [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
