"""initial = "empty": every key starts drained when the limit is made, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

import shmlimit
from shmlimit.errors import ConfigError
from tests.conftest import Clock

INTERVAL_NS = 1_000_000_000
BURST = 3
EMPTY = shmlimit.LimitConfig(
    "a", shmlimit.Rate.parse_several(f"1/s burst {BURST}"), initial="empty"
)


def test_no_burst_until_it_has_refilled(segment_name: str, clock: Clock) -> None:
    with shmlimit.Limiter(segment_name, keys=100, clock=clock, a=EMPTY) as limiter:
        limit = limiter["a"]
        refused = limit.hit("early")
        assert not refused
        assert refused.remaining == 0
        assert refused.retry_after_ns == INTERVAL_NS
        assert refused.reset_after_ns == BURST * INTERVAL_NS
        clock.ns += INTERVAL_NS
        assert [limit.allow("early") for _ in range(2)] == [True, False]
        clock.ns += (BURST - 1) * INTERVAL_NS
        assert limit.peek("new", 0).remaining == BURST
        assert [limit.allow("new") for _ in range(BURST + 1)] == [True] * BURST + [False]
        assert limit.peek("early", 0).remaining == BURST - 1, "like any bucket from then on"


def test_a_reclaimed_key_is_no_different_from_a_new_one(segment_name: str, clock: Clock) -> None:
    """One line of slots for all keys, so that dead ones are taken over all the time."""
    with shmlimit.Limiter(segment_name, keys=1, clock=clock, a=EMPTY) as limiter:
        limit = limiter["a"]
        for step in range(1, 4 * BURST):
            clock.ns += INTERVAL_NS
            full_cells = min(step, BURST)
            for i in range(20):
                assert limit.peek(f"key-{step}-{i}", 0).remaining == full_cells
            limit.clear("key")
            assert limit.peek("key", 0).remaining == full_cells
        limiter.check()


def test_who_comes_later_drains_nothing(segment_name: str, clock: Clock) -> None:
    with shmlimit.Limiter(segment_name, keys=100, clock=clock, a=EMPTY) as first:
        clock.ns += BURST * INTERVAL_NS
        with shmlimit.Limiter(segment_name, keys=100, clock=clock, a=EMPTY) as second:
            assert second["a"].peek("x", 0).remaining == BURST
        first["a"].reset()
        assert first["a"].peek("x", 0).remaining == BURST, "a reset forgets, it does not drain"


def test_the_drain_of_a_slow_rate_goes_with_the_rate(segment_name: str, clock: Clock) -> None:
    """A rate that was mistyped must not lock all keys out after it was corrected."""
    slow = shmlimit.LimitConfig("a", shmlimit.Rate.parse_several("1/h burst 100"), initial="empty")
    with shmlimit.Limiter(segment_name, keys=100, clock=clock, a=slow) as limiter:
        assert limiter["a"].hit("x").retry_after_ns == 3600 * INTERVAL_NS
        (rate,) = EMPTY.rates
        limiter._segment.table.publish("a", [rate])
        assert limiter["a"].hit("x").retry_after_ns == INTERVAL_NS
        assert limiter["a"].peek("x", 0).remaining == 0, "and nothing is minted"


def test_a_full_one_is_the_default(segment_name: str, clock: Clock) -> None:
    with shmlimit.Limiter(segment_name, keys=100, clock=clock, a=f"1/s burst {BURST}") as limiter:
        assert limiter["a"].peek("x", 0).remaining == BURST


def test_in_the_file(segment_name: str, tmp_path: Path) -> None:
    file = tmp_path / "shmlimit.toml"
    text = f'[table]\nname = "{segment_name}"\nkeys = 10\n[limits.a]\nrate = "1/h"\ninitial = '
    file.write_text(text + '"empty"')
    with shmlimit.Limiter.from_config(file) as limiter:
        assert not limiter["a"].hit("x")
    file.write_text(text + '"emtpy"')
    with pytest.raises(ConfigError, match=r"limits\.a\.initial.*did you mean 'empty'"):
        shmlimit.Config.load(file)
