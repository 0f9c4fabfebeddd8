"""The limiter: a named segment and the limits in it, as an application holds them."""

from __future__ import annotations

import atexit
import dataclasses
import difflib
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from shmlimit._core import CheckReport, HostsState, Limit
from shmlimit.config import Config, LimitConfig, TableConfig
from shmlimit.decisions import Decisions, Request, hit_all
from shmlimit.errors import ConfigError, InvalidRate, LimiterClosed
from shmlimit.publication import Replace, publish
from shmlimit.rate import Rate
from shmlimit.reloading import reload
from shmlimit.segment import Clock
from shmlimit.segment_creation import Role, SegmentSpec
from shmlimit.segment_opening import create_or_attach, lead

log = logging.getLogger("shmlimit")

# Every open limiter of this process and those it inherited by fork, by the name of its segment.
_open_limiters: dict[str, Limiter] = {}


class Limiter:
    """The limits of one host: one table in shared memory for all processes that name it.

    The first process makes the segment, the others attach to it; forked workers inherit it. When
    the last one closes it or exits, it is removed. A process that is killed, or left by os._exit,
    removes nothing: if it was the last, the next start takes the segment over, with its buckets.

    - name: 1 to 200 letters, digits, '_', '.', '-'
    - keys: the most live keys expected, over all limits; 32 bytes each are reserved
    - workers: processes with counters of their own; more than these share one row
    - clock: a callable that gives monotonic nanoseconds, for tests; all processes of a segment
      have to read the same clock
    - owner: the uid that workers run as, when they are not started as that user
    - limits: rate strings, Rates or LimitConfigs by name. A limit that the segment has already
      keeps its numbers; a difference is logged.

    Raises ConfigError for what is not accepted, and a SegmentError when the segment cannot be
    made or trusted.
    """

    def __init__(
        self,
        name: str,
        /,
        *,
        keys: int = 1_000_000,
        workers: int = 64,
        clock: Clock | None = None,
        owner: int | None = None,
        **limits: str | Rate | LimitConfig,
    ) -> None:
        configs = tuple(_limit_config(limit, value) for limit, value in limits.items())
        config = Config(TableConfig(name, keys, workers), configs)
        self._open(config, clock, owner, replace="none")

    @classmethod
    def from_config(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
        owner: int | None = None,
        workers: int | None = None,
        role: Role = "user",
    ) -> Limiter:
        """The limiter that shmlimit.toml describes: of `path`, $SHMLIMIT_CONFIG or here.

        A limiter of that file or name which this process has open already, or has inherited by
        fork, is returned as it is, and so is without a path the only inherited one of any file: a
        new worker does not depend on what its file says by then, nor on where it is.
        Otherwise the file decides: limits that the segment has with other numbers get the file's,
        in all processes, and keep their buckets; that is logged.

        - workers: the least number of counter rows to make room for
        - role: "master" for the process that a server's workers are forked from: a second server's
          is refused (SegmentInUse) while it lives, unless its file says shared = true in [table].
          "upgrade" for one that takes over from such a master. When the file asks for another
          number of keys than the running segment has, they put a new segment in its place:
          processes that have the old one keep it, and count for themselves, until they end.

        Raises what Limiter raises.
        """
        known = _open_already(Config.place(path), or_inherited=path is None)
        if known is None:
            config = Config.load(Config.find(path))
            known = _open_limiters.get(config.table.name)
            if known is None:
                known = cls._opened(config, clock, owner, workers, role)
        lead(known._segment, dataclasses.replace(known._spec, role=role))
        return known

    @classmethod
    def _opened(
        cls,
        config: Config,
        clock: Clock | None,
        owner: int | None,
        workers: int | None,
        role: Role,
    ) -> Limiter:
        if workers is not None and workers > config.table.workers:
            table = dataclasses.replace(config.table, workers=workers)
            config = dataclasses.replace(config, table=table)
        limiter = cls.__new__(cls)
        # To start a server is to load the configuration again; to open its table is not.
        replace: Replace = "file" if role == "user" else "by hand"
        limiter._open(config, clock, owner, replace=replace, role=role)
        known = _open_limiters[config.table.name]
        if known is not limiter:  # another thread was faster
            limiter.close()
        return known

    def _open(
        self,
        config: Config,
        clock: Clock | None,
        owner: int | None,
        *,
        replace: Replace,
        role: Role = "user",
    ) -> None:
        if clock is not None and not callable(clock):
            raise TypeError(f"clock: accepted is a callable that gives nanoseconds, not {clock!r}")
        table = config.table
        self.name = table.name
        self.config = config
        self._opened_by_pid = os.getpid()
        self._spec = SegmentSpec(
            table.name,
            os.geteuid() if owner is None else owner,
            table.keys,
            table.workers,
            clock,
            role,
            table.shared,
        )
        self._segment = create_or_attach(self._spec)
        self._segment.table.limiter = weakref.ref(self)
        try:
            # What a crash left has nobody else's limits to respect.
            publish(
                self._segment.table, config, "by hand" if self._segment.left_behind else replace
            )
            self._reloads_seen = self._segment.table.reloads
        except BaseException:
            self._segment.close()
            raise
        _open_limiters.setdefault(self.name, self)
        atexit.register(self.close)

    def reload(self, path: str | os.PathLike[str] | None = None) -> None:
        """Reads shmlimit.toml again and publishes what it says now, to all processes at once.

        A changed rate, mode or when_full counts from the next request on, and buckets are kept as
        time: who owes two seconds owes two seconds. New limits are made. A limit that the file
        named before and names no more is removed: RateLimitMiddleware applies it no more, and code
        that uses it gets LimitRemoved, in all processes; when it comes back it begins afresh. What
        was set by hand counts no more, but for a pinned count of hosts. Other processes `follow`. A
        changed `name`, `keys` or `workers` needs a restart, which is logged.

        - path: as in from_config; None is the file that this limiter came from

        Raises ConfigError for a file that is not accepted, also when it leaves the middleware no
        limit to apply, and TooManyLimits: then nothing has changed, and `hosts` says so. A
        SegmentError, when limits cannot be published, may come after some of them.
        """
        place = path or self.config.path
        if place is None:
            raise ConfigError(f"limiter {self.name!r} was made in code: give reload a file's path")
        if not self._segment.has_name:
            log.warning(
                "segment %s has lost its name: those who have it go on, others that open the name "
                "count for themselves; restart the server", self._segment.path,
            )  # fmt: skip
        # In one step: the middleware takes a new config as the sign to look again.
        self.config = reload(self._segment, self.config, place, "by hand")
        self._reloads_seen = self._segment.table.reloads

    def follow(self) -> Config:
        """The configuration, read again if another process has loaded it again since: `key` and the
        names of limits are each process's own. Costs a look at the table otherwise."""
        reloads = self._segment.table.reloads
        if reloads != self._reloads_seen:
            self._reloads_seen = reloads
            if self.config.path is not None:
                try:
                    config = Config.load(self.config.path)
                    self.config = dataclasses.replace(config, table=self.config.table)
                except ConfigError as error:
                    log.warning(
                        "process %d keeps the names and keys of limits that it has: %s",
                        os.getpid(), error,
                    )  # fmt: skip
        return self.config

    @property
    def inherited(self) -> bool:
        """Whether a process that this one was forked from has the segment open."""
        first = _open_limiters.get(self.name, self)
        known = first if first.path == self.path else self
        return known._opened_by_pid != os.getpid()

    @property
    def owner(self) -> int:
        """The uid of the segment's owner, whom workers run as."""
        return self._spec.owner

    @property
    def path(self) -> Path:
        """The segment's file."""
        return Path(self._segment.path)

    @property
    def size_bytes(self) -> int:
        """What the segment takes of /dev/shm."""
        return self._segment.header.segment_bytes

    def segment_descriptor(self) -> AbstractContextManager[int]:
        """A new descriptor of the segment's file, with no lock on it, to hand on to an agent. Its
        holder is no user of the table: it neither keeps it nor removes it."""
        return self._segment.reopened()

    @property
    def has_agent(self) -> bool:
        """Whether an agent works for the table, be it stopped: `hosts.heartbeat_age` tells."""
        return self._segment.has_agent

    @property
    def hosts(self) -> HostsState:
        """How many hosts share the limits, who says so and since when."""
        return self._segment.table.hosts.state()

    def __getitem__(self, name: str) -> Limit:
        """The limit of that name. Raises LimitNotFound, and LimitRemoved for one that a reload, in
        any process, has removed."""
        return self._segment.table.limit(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._segment.table.names())

    def __len__(self) -> int:
        return len(self._segment.table.names())

    def __contains__(self, name: object) -> bool:
        return name in self._segment.table.names()

    def hit_all(self, requests: Iterable[Request]) -> Decisions:
        """Puts one request to several limits: it takes from all when all allow it, else from none.

        Each of `requests` is (limit's name, key) or (limit's name, key, cost). The answer is the
        tuple of their Decisions, true when all allow; `deciding` is the one that decided.

        A cell may be lost on a request that is refused when a limit's answer changes between the
        look at it and the hit: another process took its last cells, or some became free. A bucket
        that is named twice is asked once, for the sum of the costs.

        Raises what Limit.hit raises, LimitNotFound, TypeError for what is no request and ValueError
        for none at all, before anything is taken; the failure of a clock or segment may come
        between two limits.
        """
        return hit_all(self, requests)

    def check(self) -> CheckReport:
        """Walks the whole table and asserts its structure. Raises TableDamaged with evidence."""
        return self._segment.table.check()

    def counters(self) -> dict[str, dict[str, int]]:
        """Counts by limit over all workers: allowed, denied, cells, shadow_denied, contended,
        evicted, full_denied, full_allowed, lost. They never fall while the segment lives, and stay
        when a limit is removed."""
        return self._segment.table.counters()

    def worker_counters(self) -> dict[int, dict[str, dict[str, int]]]:
        """The same by the pid that counts in each row now; 0 is the row that workers share."""
        return self._segment.table.worker_counters()

    def close(self) -> None:
        """Lets go of the segment, and removes it when nobody else uses it. May be called twice."""
        atexit.unregister(self.close)
        if _open_limiters.get(self.name) is self:
            del _open_limiters[self.name]
        self._segment.close()

    def __copy__(self) -> Self:
        return self  # a copy would be the same table

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Limiter], tuple[Config, int]]:
        """By name: where it is unpickled, the limiter of that name which is open there, or it is
        opened as by Limiter(name, ...). Raises LimiterClosed, and TypeError for a clock of one's
        own: the other process could not read it."""
        if self._segment.closed:
            raise LimiterClosed(f"limiter {self.name} was closed in this process; open it again")
        if self._spec.clock is not None:
            raise TypeError(
                f"limiter {self.name!r} has a clock of its own, which another process cannot read: "
                f"open it there, with Limiter({self.name!r}, clock=...)"
            )
        return type(self)._unpickled, (self.config, self._spec.owner)

    @classmethod
    def _unpickled(cls, config: Config, owner: int) -> Limiter:
        known = _open_limiters.get(config.table.name)
        if known is not None and known._spec.owner == owner:
            return known
        limiter = cls.__new__(cls)
        limiter._open(config, None, owner, replace="none")
        return limiter

    def __enter__(self) -> Limiter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        told = "closed" if self._segment.closed else ", ".join(self)
        return f"<Limiter {self.name!r} {told}>"


def _open_already(place: Path, *, or_inherited: bool) -> Limiter | None:
    """The limiter of that file; or the only inherited one of any file."""
    of_files = [each for each in _open_limiters.values() if each.config.path is not None]
    for limiter in of_files:
        if limiter.config.path == place:  # not read again: it may be broken or gone by now
            return limiter
    of_parent = [each for each in of_files if each.inherited]
    return of_parent[0] if or_inherited and len(of_parent) == 1 else None


def _limit_config(name: str, value: str | Rate | LimitConfig) -> LimitConfig:
    if isinstance(value, LimitConfig):
        return dataclasses.replace(value, name=name)
    try:
        return LimitConfig(name, (value,) if isinstance(value, Rate) else Rate.parse_several(value))
    except InvalidRate as error:
        raise InvalidRate(f"limit {name!r}: {error}") from None
    except TypeError as error:
        options = ("keys", "workers", "clock", "owner")
        meant = difflib.get_close_matches(name, options, n=1)
        hint = f" (the option is {meant[0]}=)" if meant else ""
        raise TypeError(f"limit {name!r}: {error}{hint}") from None
