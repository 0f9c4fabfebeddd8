"""All that can be told of one segment, as plain values and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from shmlimit._core import COUNTERS
from shmlimit.errors import ShmlimitError, TableDamaged
from shmlimit.hosts_facts import hosts_facts, hosts_rows
from shmlimit.publication import share_text
from shmlimit.segment_usage import Usage
from shmlimit.segment_view import SegmentView


def facts_of(view: SegmentView, usage: Usage | None) -> dict[str, Any]:
    """What json takes. Durations in seconds, sizes in bytes; `damage` is what check() says, and
    `slots` is None then."""
    header, table = view.header, view.table
    slots, damage = None, None
    try:
        slots = table.check()._asdict()
    except TableDamaged as error:
        damage = str(error)
    return {
        "path": view.path,
        "owner": view.owner,
        "size_bytes": header.segment_bytes,
        "keys": view.keys,
        "in_use": usage.in_use if usage else None,
        "pids": usage.pids if usage else [],
        "age_s": view.age_s,
        "made_at": _utc(view.made_at_s),
        "clock": "CLOCK_MONOTONIC",  # a view of another clock's segment is refused
        "boot_id": header.boot_id.hex(),
        "time_namespace": header.time_ns_inode,
        "pid_namespace": header.pid_ns_inode,
        "same_pid_namespace": view.same_pids,
        "hosts": hosts_facts(view),
        "limits": {name: _limit(view, name) for name in table.names()},
        "counters": table.counters(),
        "worker_rows": header.worker_rows,
        "workers": [
            {"pid": row.pid or None, "alive": view.worker_lives(row), "counters": row.counters}
            for row in table.worker_rows()
        ],
        "slots": slots,
        "damage": damage,
    }


def _limit(view: SegmentView, name: str) -> dict[str, str | bool | None]:
    """`share` is what this host enforces; `by_hand`: until the configuration is loaded again."""
    told: dict[str, str | bool | None] = dict.fromkeys(
        ("rate", "share", "mode", "when_full", "scope", "by_hand", "damage")
    )
    try:
        limit = view.table.limit(name)
        hosts = view.table.hosts.state().in_force
        told["rate"] = "; ".join(map(str, limit.rates))
        told["share"] = share_text(limit, hosts)
        told["mode"], told["when_full"] = limit.mode, limit.when_full
        told["scope"], told["by_hand"] = limit.scope, limit.by_hand
    except ShmlimitError as error:
        told["damage"] = str(error)
    return told


def _utc(seconds: float) -> str | None:
    """None for what no calendar holds: the header is damaged, or forged."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return None


def facts_text(facts: dict[str, Any], usage: Usage | None, owner: str) -> Iterator[str]:
    """The same in lines."""
    pids = "this one's" if facts["same_pid_namespace"] else "another one's: pids are not ours"
    rows = [
        ("segment", facts["path"]),
        ("owner", owner),
        ("use", str(usage or "unknown")),
        ("made", f"{facts['made_at']}, {timedelta(seconds=int(facts['age_s']))} ago"),
        ("size", f"{size_text(facts['size_bytes'])} for {facts['keys']} keys"),
        ("clock", f"{facts['clock']} of boot {facts['boot_id']}"),
        ("pids", f"namespace {facts['pid_namespace']}, {pids}"),
        ("slots", _slots_text(facts["slots"]) or "damaged: see check-segment"),
        *hosts_rows(facts["hosts"]),
    ]
    yield from columns(rows)
    yield ""
    yield from columns(
        [("LIMIT", "RATE", "THIS HOST", "MODE", "WHEN FULL"), *_limit_rows(facts["limits"])]
    )
    yield ""
    yield from columns(_counter_rows(facts))


def _slots_text(slots: dict[str, int] | None) -> str:
    if slots is None:
        return ""
    return (
        "{live} live ({uncommitted} uncommitted, {abandoned} abandoned), {dead} dead, "
        "{unused} unused, of {slots}".format(**slots)
    )


def _limit_rows(limits: dict[str, dict[str, Any]]) -> Iterator[Sequence[object]]:
    for name, told in limits.items():
        if told["damage"]:
            yield name, told["damage"]
            continue
        here = "all of it" if told["share"] == told["rate"] else told["share"]
        by_hand = ", by hand" if told["by_hand"] else ""
        yield name, told["rate"], here, told["mode"], told["when_full"] + by_hand


def _counter_rows(facts: dict[str, Any]) -> Iterator[Sequence[object]]:
    """The sums first, then each worker that ever counted under a limit."""
    yield ("LIMIT", "WORKER", *(counter.upper() for counter in COUNTERS))
    for name, counts in facts["counters"].items():
        yield (name, "all", *counts.values())
    for worker in facts["workers"]:
        alive = {True: "alive", False: "gone", None: "unknown"}[worker["alive"]]
        who = f"{worker['pid']} {alive}" if worker["pid"] else "shared row"
        for name, counts in worker["counters"].items():
            if any(counts.values()):
                yield (name, who, *counts.values())


def columns(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Rows as lines, their cells below one another. The last cell of a row may be of any length,
    and what a terminal would obey is escaped: it may come from another user's file."""
    texts = [[printable(str(cell)) for cell in row] for row in rows]
    widths = [
        max(len(row[i]) for row in texts if len(row) > i + 1)
        for i in range(max(map(len, texts), default=0) - 1)
    ]
    for row in texts:
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells[: len(row) - 1], row[-1]])


def printable(text: str) -> str:
    return text if text.isascii() and text.isprintable() else ascii(text)[1:-1]


def size_text(size_bytes: int) -> str:
    """In the unit that leaves one to four digits before the point."""
    size, units = float(size_bytes), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while size >= 1024 and unit != "TiB":
        size, unit = size / 1024, next(units)
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
