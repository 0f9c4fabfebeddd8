"""What one of N hosts enforces of a rate: the two numbers that a limit's row holds.

Hosts share a rate by time, not by cells: each lets a cell pass N times as rarely, and may still
run a whole burst ahead of the clock in its own, slower time. So no part of a burst is lost to
rounding (a burst of 5 over 10 hosts would be half a cell each), and every host admits something.
"""

from __future__ import annotations

from dataclasses import dataclass

from shmlimit.errors import ConfigError
from shmlimit.rate import REFILL_TICKS_MAX, TICKS_PER_NS, Rate, shown


@dataclass(frozen=True, slots=True)
class Share:
    """One host's part of a rate. Ticks are sixteenths of a nanosecond.

    All hosts together admit at most burst + rate * L in any window of length L, as long as there
    are no more hosts than the burst has cells; beyond that, one cell a host more.
    """

    interval_ticks: int  # T: what one cell costs here, rounded up so as never to admit more
    tolerance_ticks: int  # tau: how far a bucket may run ahead of now; at least one cell

    @classmethod
    def of(cls, rate: Rate, hosts: int = 1) -> Share:
        """The share of one among `hosts` equal hosts.

        TypeError: hosts is not an int. ConfigError: hosts < 1, or so many that the time to refill
        the burst on one host would reach 2**61 ticks (4.5 years): see `hosts_max`.
        """
        if not isinstance(hosts, int) or isinstance(hosts, bool):
            raise TypeError(f"hosts must be an int, not {type(hosts).__name__}")
        if not 1 <= hosts <= hosts_max(rate):
            raise ConfigError(f"hosts: {shown(hosts)}; accepted for {rate}: 1 to {hosts_max(rate)}")
        interval_ticks = -(-TICKS_PER_NS * rate.period_ns * hosts // rate.count)
        return cls(interval_ticks, max(rate.burst * rate.interval_ticks, interval_ticks))

    @classmethod
    def of_most(cls, rate: Rate, hosts: int) -> Share:
        """The same, with `hosts_max` of the rate in the place of a count beyond it: then all hosts
        together admit more, by as much as the count is cut."""
        return cls.of(rate, min(hosts, hosts_max(rate)))


def hosts_max(rate: Rate) -> int:
    """The most hosts for which burst * T stays below 2**61 ticks; at least 1."""
    # burst * T < 2**61  <=>  T <= t, with t below  <=>  16 * period * hosts <= t * count
    interval_most = (REFILL_TICKS_MAX - 1) // rate.burst
    return interval_most * rate.count // (TICKS_PER_NS * rate.period_ns)
