"""A whole limiter as plainly as it can be written: a dict of arrival times, whole numbers only.

Product tests compare against this, so nothing here comes from the product. It has no capacity and
no concurrency: what the real table does when a set is full or when processes race is not its
subject. Times come in as nanoseconds since the limiter's epoch, and inside are ticks of 1/16 ns.

A bucket is its theoretical arrival time (TAT): the tick at which it is full again. Unknown keys
are at 0, and time may go backwards between calls, since a later reading may belong to another
process that read its clock earlier.
"""

from __future__ import annotations

from dataclasses import dataclass

TICKS_PER_NS = 16


def ceil_div(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


@dataclass(frozen=True)
class Verdict:
    allowed: bool
    remaining: int  # whole cells that fit right after this call
    retry_after_ns: int | None  # 0: allowed; None: the cost exceeds the burst, so never
    reset_after_ns: int  # until the bucket is full, if nothing more is taken

    def __bool__(self) -> bool:
        return self.allowed


class OracleLimit:
    """One limit and all its buckets on one of `hosts` equal hosts."""

    def __init__(self, count: int, period_ns: int, burst: int, hosts: int = 1) -> None:
        self.count = count  # cells ...
        self.period_ns = period_ns  # ... in this time, on all hosts together
        self.burst = burst  # cells, on all hosts together
        self.tat_ticks: dict[str | bytes, int] = {}
        self.share(hosts)

    def share(self, hosts: int) -> None:
        """The host count becomes `hosts`. Debts stay the same in time, not in cells."""
        whole_interval = ceil_div(TICKS_PER_NS * self.period_ns, self.count)
        self.interval_ticks = ceil_div(TICKS_PER_NS * self.period_ns * hosts, self.count)
        self.tolerance_ticks = max(self.burst * whole_interval, self.interval_ticks)

    def hit(self, key: str | bytes, t_ns: int, cost: int = 1) -> Verdict:
        verdict, tat = self._step(key, t_ns, cost)
        if tat is None:
            return verdict
        self.tat_ticks[key] = tat
        return self._verdict(key, t_ns, late_ticks=0)

    def peek(self, key: str | bytes, t_ns: int, cost: int = 1) -> Verdict:
        """Whether `hit` would be allowed, and how much there is before it."""
        return self._step(key, t_ns, cost)[0]

    def late_ticks(self, key: str | bytes, t_ns: int, cost: int) -> int:
        """How much too early a request of `cost` cells comes; 0 when it fits."""
        now = TICKS_PER_NS * t_ns
        new = max(self.tat_ticks.get(key, 0), now) + cost * self.interval_ticks
        # A cost above this host's share of the burst is admitted by a full bucket.
        return max(new - now - max(self.tolerance_ticks, cost * self.interval_ticks), 0)

    def grant(self, key: str | bytes, t_ns: int, want: int) -> int:
        """Takes as many of `want` cells as fit at once; how many that was."""
        granted = min(want, self.peek(key, t_ns, cost=0).remaining)
        if granted:
            assert self.hit(key, t_ns, granted), "what remains can be taken"
        return granted

    def clear(self, key: str | bytes) -> None:
        self.tat_ticks.pop(key, None)

    def reset(self) -> None:
        self.tat_ticks.clear()

    def live_keys(self, t_ns: int) -> set[str | bytes]:
        """The keys that differ from keys never seen: their TAT has not passed, strictly."""
        now = TICKS_PER_NS * t_ns
        return {key for key, tat in self.tat_ticks.items() if tat >= now}

    def _step(self, key: str | bytes, t_ns: int, cost: int) -> tuple[Verdict, int | None]:
        """The verdict before anything is taken, and the new TAT if something is to be taken."""
        if cost > self.burst:
            return self._verdict(key, t_ns, late_ticks=None), None
        late = self.late_ticks(key, t_ns, cost)
        new = max(self.tat_ticks.get(key, 0), TICKS_PER_NS * t_ns) + cost * self.interval_ticks
        takes = late == 0 and cost > 0
        return self._verdict(key, t_ns, late_ticks=late), new if takes else None

    def _verdict(self, key: str | bytes, t_ns: int, late_ticks: int | None) -> Verdict:
        ahead = max(self.tat_ticks.get(key, 0) - TICKS_PER_NS * t_ns, 0)
        return Verdict(
            allowed=late_ticks == 0,
            remaining=max(0, self.tolerance_ticks - ahead) // self.interval_ticks,
            retry_after_ns=None if late_ticks is None else ceil_div(late_ticks, TICKS_PER_NS),
            reset_after_ns=ceil_div(ahead, TICKS_PER_NS),
        )


class OracleLimiter:
    """Limits by name, as one application holds them; their buckets are apart."""

    def __init__(self, **limits: tuple[int, int, int]) -> None:
        """limits: (count, period_ns, burst) by name."""
        self.limits = {name: OracleLimit(*numbers) for name, numbers in limits.items()}

    def __getitem__(self, name: str) -> OracleLimit:
        return self.limits[name]

    def share(self, hosts: int) -> None:
        for limit in self.limits.values():
            limit.share(hosts)
