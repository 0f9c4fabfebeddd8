"""Reloading: a configuration that was read again becomes what a running segment goes by."""

from __future__ import annotations

import dataclasses
import logging
import os

from shmlimit import _core
from shmlimit.config import LIMITS_MAX, Config, TableConfig
from shmlimit.errors import ConfigError, TooManyLimits
from shmlimit.publication import Replace, publish
from shmlimit.segment import KEYS_PER_LINE, Segment

log = logging.getLogger("shmlimit")


def reload(
    segment: Segment, runs: Config, place: str | os.PathLike[str], replace: Replace
) -> Config:
    """Publishes what the file of `place` says now, and removes the limits that `runs` took from it
    and that it names no more. Returns what runs then; other processes see that it was reloaded.

    Raises ConfigError and TooManyLimits: then nothing has changed, and the table has the reason.
    """
    hosts = segment.table.hosts
    try:
        config = Config.load(place)
        _refuse(segment, runs, config)
    except (ConfigError, TooManyLimits) as error:
        hosts.refuse(str(error))
        raise
    publish(segment.table, config, replace)
    named = {limit.name for limit in config.limits}
    # What code has named is no file's to remove.
    for limit in runs.limits if runs.path else ():
        if limit.name not in named and segment.table.remove(limit.name):
            log.warning(
                "limit %s of segment %s was removed, in all processes, as %s says",
                limit.name, segment.path, config.path,
            )  # fmt: skip
    hosts.refuse("")
    hosts.reloaded()
    return dataclasses.replace(config, table=runs.table)


def _refuse(segment: Segment, runs: Config, asked: Config) -> None:
    """Raises for what must not be published; logs what cannot be."""
    if any(limit.key for limit in runs.limits) and not any(limit.key for limit in asked.limits):
        raise ConfigError(
            f"{asked.path}: no limit has a key any more, so no request would be limited; to let "
            f'all pass give the limits mode = "off"'
        )
    missing = segment.table.rows_missing([(limit.name, len(limit.rates)) for limit in asked.limits])
    if missing:
        raise TooManyLimits(
            f"{asked.path}: with those that were removed from it there are {missing} rates too "
            f"many for segment {segment.path}, which has room for {LIMITS_MAX}: restart the "
            f"server, so that the segment is made anew"
        )
    running = _running_table(segment, runs.table, asked.table)
    for key in ("name", "keys", "workers"):
        was, now = getattr(running, key), getattr(asked.table, key)
        if now != was:
            log.warning(
                "%s: table.%s is %r now and %r in the running segment; it needs a restart: stop "
                "the server and start it again",
                asked.path, key, now, was,
            )  # fmt: skip


def _running_table(segment: Segment, runs: TableConfig, asked: TableConfig) -> TableConfig:
    """What of [table] the segment has: with the numbers that `asked` has, where they come to the
    same, else those that `runs` has, else as they can be told from its size."""
    header = segment.header
    keys = next(
        (each.keys for each in (asked, runs) if _core.lines_for(each.keys) == header.lines),
        header.lines * KEYS_PER_LINE,
    )
    workers = asked.workers if asked.workers <= header.worker_rows else header.worker_rows
    return dataclasses.replace(runs, name=header.name, keys=keys, workers=workers)
