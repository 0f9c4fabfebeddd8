"""What one of N hosts enforces, against every share in the vectors."""

from __future__ import annotations

import pickle
from contextlib import ExitStack
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shmlimit import Limiter
from shmlimit.errors import ConfigError
from shmlimit.rate import REFILL_TICKS_MAX, Rate
from shmlimit.share import Share, hosts_max
from tests import vector_files
from tests.conftest import Clock

UNHURRIED = settings(deadline=None)  # a busy machine is no failure


def test_every_share_in_the_vectors() -> None:
    shares = 0
    for sequence in vector_files.gcra():
        rate = Rate(sequence["count"], sequence["period_ns"], sequence["burst"])
        expected = [(sequence["hosts"], sequence["T_ticks"], sequence["tau_ticks"])]
        for step in sequence["steps"]:
            if step["op"] == "share":
                expected.append((step["hosts"], step["T_ticks"], step["tau_ticks"]))
        for hosts, interval_ticks, tolerance_ticks in expected:
            assert Share.of(rate, hosts) == Share(interval_ticks, tolerance_ticks), (rate, hosts)
            shares += 1
    assert shares > len(vector_files.gcra())  # some sequences change their share


def test_one_host_is_the_default() -> None:
    rate = Rate.parse("3/s burst 2")
    assert Share.of(rate) == Share.of(rate, hosts=1) == Share(5_333_333_334, 10_666_666_668)


def test_more_hosts_than_the_burst_still_admit_a_cell_each() -> None:
    share = Share.of(Rate.parse("5/min"), hosts=10)
    assert share.tolerance_ticks == share.interval_ticks == 16 * 120 * 10**9


@pytest.mark.parametrize(("hosts", "burst"), [(10, 10), (4, 5), (1, 5)])
def test_a_fleet_that_asks_all_the_time_gets_the_rate_and_the_stated_burst(
    segment_name: str, clock: Clock, hosts: int, burst: int
) -> None:
    """Five a minute, for ten minutes. With more hosts than cells in the burst, it is one a host."""
    rate = Rate.parse("5/min")
    admitted = [0] * hosts
    with ExitStack() as stack:
        limits = []
        for host in range(hosts):
            limiter = Limiter(f"{segment_name}-{host}", keys=10, workers=1, clock=clock, a=rate)
            stack.enter_context(limiter)
            limiter._segment.table.hosts.pin(hosts)
            limits.append(limiter["a"])
        for _ in range(600):
            for host, limit in enumerate(limits):
                admitted[host] += limit.allow("x")
            clock.ns += 1_000_000_000
    assert min(admitted) >= 1, "every host admits some"
    assert 50 <= sum(admitted) <= 50 + burst


# Cells a tick at most 1, and no product near 2**61.
RATES = st.builds(
    Rate, st.integers(1, 10**9), st.integers(10**8, 10**13), st.integers(1, 1000)
).filter(lambda rate: hosts_max(rate) >= 1000)


@UNHURRIED
@given(RATES, st.integers(1, 1000))
def test_the_fleet_is_never_faster_than_the_rate(rate: Rate, hosts: int) -> None:
    share = Share.of(rate, hosts)
    assert Fraction(hosts, share.interval_ticks) <= Fraction(rate.count, 16 * rate.period_ns)
    # ... nor slower by more than one tick in a host's interval
    assert (share.interval_ticks - 1) * rate.count < 16 * rate.period_ns * hosts


@UNHURRIED
@given(RATES, st.integers(1, 999))
def test_another_host_lengthens_the_interval_and_leaves_the_tolerance(
    rate: Rate, hosts: int
) -> None:
    fewer, more = Share.of(rate, hosts), Share.of(rate, hosts + 1)
    assert more.interval_ticks > fewer.interval_ticks
    if hosts < rate.burst:
        assert more.tolerance_ticks == fewer.tolerance_ticks


@UNHURRIED
@given(st.integers(1, 2**62), st.integers(1, 2**62), st.integers(1, 2**61), st.integers(0, 10**6))
def test_hosts_max_is_where_the_words_would_overflow(
    count: int, period_ns: int, burst: int, beyond: int
) -> None:
    try:
        rate = Rate(count, period_ns, burst)
    except ConfigError:
        return
    most = hosts_max(rate)
    assert most >= 1
    share = Share.of(rate, most)
    assert rate.burst * share.interval_ticks < REFILL_TICKS_MAX
    assert share.tolerance_ticks < REFILL_TICKS_MAX
    assert rate.burst * -(-16 * period_ns * (most + 1) // count) >= REFILL_TICKS_MAX
    with pytest.raises(ConfigError, match=r"hosts: .*accepted"):
        Share.of(rate, most + 1 + beyond)


@pytest.mark.parametrize("hosts", [0, -1, 10**5000], ids=["0", "-1", "huge"])
def test_refused_host_counts(hosts: int) -> None:
    with pytest.raises(ConfigError, match=r"hosts: .* accepted for 1/s: 1 to 144115188"):
        Share.of(Rate.parse("1/s"), hosts)


@pytest.mark.parametrize("hosts", [True, 1.0, "2", None])
def test_host_counts_are_ints(hosts: object) -> None:
    with pytest.raises(TypeError, match="hosts must be an int"):
        Share.of(Rate.parse("1/s"), hosts)  # type: ignore[arg-type]


def test_a_share_survives_pickling() -> None:
    share = Share.of(Rate.parse("100/s"), 3)
    assert pickle.loads(pickle.dumps(share)) == share
