"""Hooks that cannot bring the server down, and that run beside a user's own of the same names.

An exception in a hook ends gunicorn's master: a limiter must not be the reason for that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gunicorn.arbiter import Arbiter
    from gunicorn.config import Config

Hook = Callable[..., None]  # the first argument is the Arbiter


def guarded(remedy: str) -> Callable[[Hook], Hook]:
    """A hook of that body that raises nothing but SystemExit, which is a refusal to start.

    Whatever else the body raises is logged, once a call, with what to do about it.
    """

    def of(body: Hook) -> Hook:
        @functools.wraps(body)
        def hook(server: Arbiter, *arguments: Any) -> None:
            try:
                body(server, *arguments)
            except Exception as error:
                with suppress(Exception):  # a logger may be what is broken
                    server.log.error(
                        "shmlimit: its hook %s failed and the server goes on; %s; and please "
                        "report this: %s: %s",
                        body.__name__, remedy, type(error).__name__, error, exc_info=error,
                    )  # fmt: skip

        return hook

    return of


class Composition:
    """Our hooks, set in each configuration that gunicorn reads, beside what stands there."""

    def __init__(self, hooks: Collection[Hook], last: Collection[str]) -> None:
        """Those named in `last` run after the user's, the others before."""
        self._hooks = {hook.__name__: hook for hook in hooks}
        self._last = last
        self._config: Config | None = None  # the one that was seen last

    def complete(self, config: Config) -> list[str]:
        """Adds our hooks where the configuration has others. Returns the names of those; none
        when the configuration was seen already."""
        if config is self._config:
            return []
        self._config = config
        hidden = []
        for name, ours in self._hooks.items():
            theirs = getattr(config, name)
            if theirs is not ours and not hasattr(theirs, "_beside_ours"):
                config.set(name, self._both(ours, theirs))
                hidden.append(name)
        return hidden

    def _both(self, ours: Hook, theirs: Hook) -> Hook:
        @functools.wraps(ours)
        def both(*arguments: Any) -> None:
            if ours.__name__ not in self._last:
                ours(*arguments)
                theirs(*arguments)
                return
            try:
                theirs(*arguments)
            finally:
                ours(*arguments)

        vars(both)["_beside_ours"] = theirs
        return both
