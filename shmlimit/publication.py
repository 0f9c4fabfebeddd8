"""Publication: what a configuration says becomes what a table runs by, and the log tells of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from shmlimit._core import Limit, Table
from shmlimit.config import Config, LimitConfig
from shmlimit.errors import LimitNotFound, LimitRemoved, WrongLayout
from shmlimit.hosts.settings import HostsConfig
from shmlimit.rate import Rate, period_text
from shmlimit.share import hosts_max

log = logging.getLogger("shmlimit")

Replace = Literal["none", "file", "by hand"]
"""Which numbers of a running limit give way to new ones: see Table.publish."""


def publish(table: Table, config: Config, replace: Replace) -> None:
    """All that a configuration says: the count of hosts first, since limits are divided by it."""
    if config.path is not None or not table.hosts.state().source:  # code says nothing of hosts
        publish_hosts(table, config.hosts, config.path)
    for limit in config.limits:
        publish_limit(table, limit, config.path, replace)


def publish_limit(table: Table, limit: LimitConfig, source: Path | None, replace: Replace) -> None:
    """Gives a limit its numbers, unless what runs stands. `source` is the file that says them."""
    before, rates_before = _running(table, limit.name)
    table.publish(
        limit.name,
        limit.rates,
        limit.mode,
        limit.when_full,
        scope=limit.scope,
        initial=limit.initial,
        replace=replace,
    )
    running = table.limit(limit.name)
    asked, runs = numbers_text(limit), numbers_text(running)
    if running.by_hand:
        log.warning(
            "limit %s of table %s runs at %s, set by hand, not at %s; a reload of the "
            "configuration ends that", limit.name, table.header.name, runs, asked,
        )  # fmt: skip
    elif runs != asked:
        log.warning(
            "limit %s of table %s runs at %s, which another limiter set, not at %s",
            limit.name, table.header.name, runs, asked,
        )  # fmt: skip
    elif before not in (None, runs):
        log.warning(
            "limit %s of table %s ran at %s and runs at %s now, in all processes, as %s says%s",
            limit.name, table.header.name, before, runs, source or "code",
            surplus_text(rates_before, running.rates),
        )  # fmt: skip
    running.key = limit.key
    if before != runs:
        warn_of_thin_shares(table, [limit.name])


def publish_hosts(table: Table, hosts: HostsConfig, source: Path | None) -> None:
    """Follows the source that the configuration names. One that was not followed before begins with
    the larger of `fallback` and the count that stands; one that cannot change, with its number."""
    assert hosts.fallback is not None, "HostsConfig sees to it"
    state = table.hosts.state()
    count = hosts.fallback
    if hosts.source.startswith("static:"):
        # the same text may have another number: `min` and `max` count too
        table.hosts.follow(hosts.source, count, "read")
        if state.source == hosts.source and state.counted != count:
            table.hosts.read(count, count)
    elif state.source == hosts.source:
        table.hosts.assume(count)
        table.hosts.clamp(hosts.min, hosts.max)
    else:
        table.hosts.follow(hosts.source, max(count, state.counted if state.source else 1))
    if state.source not in ("", hosts.source):
        log.warning(
            "hosts: table %s followed %s and follows %s now, as %s says: divided by %d",
            table.header.name, state.source, hosts.source, source or "code",
            table.hosts.state().in_force,
        )  # fmt: skip


def warn_of_thin_shares(table: Table, names: list[str] | None = None) -> None:
    """Logs them. To be called when the count of hosts or the limits have changed."""
    for warning in thin_shares(table, names):
        log.warning("%s", warning)


def thin_shares(table: Table, names: list[str] | None = None) -> Iterator[str]:
    """The limits that leave a host less than one request, of those or of all, with the remedy."""
    hosts = table.hosts.state().in_force
    for name in table.names() if names is None else names:
        try:
            limit = table.limit(name)
            rates = limit.rates if limit.scope == "global" else ()
        except (LimitNotFound, LimitRemoved, WrongLayout):
            continue
        for rate in rates:
            for warning in thin_share(rate, hosts):
                yield f"limit {name} of table {table.header.name}: {warning}"


def thin_share(rate: Rate, hosts: int) -> Iterator[str]:
    """What is odd about one host's share of a rate, with the remedy."""
    if hosts > hosts_max(rate):
        yield (
            f"{rate} is divided by {hosts_max(rate)} hosts, not by {hosts}, since to refill its "
            f"burst would take 4.5 years on each: lower the burst"
        )
    elif hosts > min(rate.count, rate.burst):
        at_once = (
            f", and since each lets at least one pass at once, all together let up to {hosts} pass "
            f"at once, not {rate.burst}"
            if hosts > rate.burst
            else ""
        )
        yield (
            f"{rate} over {hosts} hosts leaves each {rate.count / hosts:.3g} requests a period and "
            f"{rate.burst / hosts:.3g} of the burst, less than one{at_once}: raise rate and burst "
            f'to {hosts} or more, or give the limit scope = "host" if each host is to have it whole'
        )


def surplus_text(before: tuple[Rate, ...], now: tuple[Rate, ...]) -> str:
    """What a change of one rate lets pass beyond both, in words."""
    if len(before) != 1 or len(now) != 1 or before == now:
        return ""
    cells = now[0].surplus_after(before[0])
    if cells == 0:
        return ""
    return f"; debts are kept as time: who owes all of the old burst may take {cells} at once"


def numbers_text(limit: Limit | LimitConfig) -> str:
    """What decides about requests, for a log."""
    rates = "; ".join(map(str, limit.rates))
    of_host = ", whole on each host" if limit.scope == "host" else ""
    return f"{rates}, {limit.mode}, {limit.when_full} when full{of_host}"


def share_text(limit: Limit, hosts: int) -> str:
    """What one of that many hosts enforces of a limit."""
    if hosts == 1 or limit.scope == "host":
        return "; ".join(map(str, limit.rates))
    return "; ".join(_part_text(rate, min(hosts, hosts_max(rate))) for rate in limit.rates)


def _part_text(rate: Rate, hosts: int) -> str:
    count, burst = rate.count / hosts, max(rate.burst / hosts, 1)  # one at least may pass at once
    return f"{_decimal(count)}/{period_text(rate.period_ns)} burst {_decimal(burst)}"


def _decimal(value: float) -> str:
    return f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def _running(table: Table, name: str) -> tuple[str | None, tuple[Rate, ...]]:
    """What a limit runs at, as text and as rates; None when it does not run."""
    try:
        limit = table.limit(name)
        return numbers_text(limit), limit.rates
    except (LimitNotFound, LimitRemoved):
        return None, ()
    except WrongLayout:  # publishing this version's puts an end to it
        return "an algorithm that this version does not know", ()
