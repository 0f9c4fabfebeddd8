"""What a segment knows of its hosts and its agent, as plain values and as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shmlimit._core import HostsState
from shmlimit.process import process_lives
from shmlimit.segment_view import SegmentView

STALE_S = 2.0  # an agent gives a sign of life every half second


def hosts_facts(view: SegmentView) -> dict[str, Any]:
    """What json takes; durations in seconds.

    `agent.state` is "none" when no agent has worked yet, "works", "stale" when it lives and gives
    no sign of it (it may be stopped), "gone", or "unknown": no sign, from another pid namespace.
    """
    state = view.table.hosts.state()
    return {
        "in_force": state.in_force,
        "pinned": state.pinned,
        "counted": state.counted,
        "origin": state.origin,
        "source": state.source or None,
        "read_count": state.read_count,
        "read_age_s": state.read_age,
        "changed_age_s": state.changed_age,
        "failure": state.failure or None,
        "failing_s": state.failing,
        "refusal": state.refusal or None,
        "reloads": state.reloads,
        "agent": {
            "state": agent_state(state, view.same_pids),
            "pid": state.agent_pid,
            "heartbeat_age_s": state.heartbeat_age,
        },
    }


def agent_state(state: HostsState, same_pids: bool) -> str:
    """See hosts_facts."""
    if state.agent_pid is None or state.agent_start_ticks is None:
        return "none"
    if state.heartbeat_age is not None and state.heartbeat_age <= STALE_S:
        return "works"
    if not same_pids:
        return "unknown"
    return "stale" if process_lives(state.agent_pid, state.agent_start_ticks) else "gone"


def hosts_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The same in lines."""
    pinned = f", pinned; without that {facts['counted']}" if facts["pinned"] else ""
    since = "" if facts["changed_age_s"] is None else f", for {_age(facts['changed_age_s'])}"
    yield "hosts", f"{facts['in_force']}{pinned}{since}"
    source = facts["source"] or "none"
    if facts["read_age_s"] is not None:
        source += f", said {facts['read_count']} {_age(facts['read_age_s'])} ago"
    elif facts["origin"] == "assumed" and facts["source"]:
        source += ", has not answered yet: the count is assumed"
    yield "source", source
    if facts["failure"]:
        yield "failing", f"for {_age(facts['failing_s'] or 0)}: {facts['failure']}"
    if facts["refusal"]:
        yield "refused", facts["refusal"]
    yield "agent", _agent_text(**facts["agent"])


def _agent_text(state: str, pid: int | None, heartbeat_age_s: float | None) -> str:
    age = _age(heartbeat_age_s or 0)
    stands = "the count of hosts and the limits stand"
    return {
        "none": "none: the count of hosts and the limits change by hand and at reloads only",
        "works": f"{pid} works, last sign of life {age} ago",
        "stale": f"{pid} is stale: it lives, but gave no sign for {age}, and {stands}; end it",
        "gone": f"{pid} has gone, {age} ago, and {stands}: restart the server, or `shmlimit agent`",
        "unknown": f"{pid}, of another pid namespace, gave no sign for {age}, and {stands}",
    }[state]


def _age(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
