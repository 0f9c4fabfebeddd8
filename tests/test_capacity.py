"""As many limits and as many keys as are promised."""

from __future__ import annotations

import os
import random

import pytest

import shmlimit
from shmlimit.config import LIMITS_MAX
from shmlimit.errors import ConfigError, LimitNotFound, TooManyLimits
from shmlimit.segment_name import DIRECTORY
from tests.conftest import Clock
from tests.processes import forked

MIB = 2**20
KEYS = 10_000_000
BATCH = 20_000
BURST = 5


def test_256_limits_and_not_one_more(segment_name: str, clock: Clock) -> None:
    rates = {f"limit_{number}": f"1/h burst {number + 1}" for number in range(LIMITS_MAX)}
    options = {"keys": 10_000, "workers": 2, "clock": clock}
    with shmlimit.Limiter(segment_name, **options, **rates) as limiter:  # type: ignore[arg-type]
        assert list(limiter) == list(rates)
        assert len(limiter) == LIMITS_MAX
        for number, name in enumerate(rates):
            decision = limiter[name].hit("x")
            assert (decision.name, decision.limit, decision.remaining) == (name, number + 1, number)
        counts = limiter.counters()
        assert [counts[name]["allowed"] for name in rates] == [1] * LIMITS_MAX
        assert limiter.check().limits == LIMITS_MAX

        with pytest.raises(TooManyLimits) as refusal:
            shmlimit.Limiter(segment_name, **options, more="1/s")  # type: ignore[arg-type]
        assert "has no room for limit 'more': its 256 rows" in str(refusal.value)
        assert "until the segment is made anew" in str(refusal.value)
        with pytest.raises(LimitNotFound, match=r"has no limit 'more'; it has: limit_0, limit_1"):
            limiter["more"]
        assert list(limiter) == list(rates)
        assert limiter["limit_255"].hit("x").remaining == 254, "the refused one took nothing away"
    with pytest.raises(ConfigError, match="limits: there are 257 rates in them"):
        shmlimit.Limiter(segment_name, **options, **rates, more="1/s")  # type: ignore[arg-type]


def batch(start: int) -> list[str]:
    return [f"key {number}" for number in range(start, start + BATCH)]


def test_a_million_random_keys_leave_the_table_and_the_worker_as_large_as_they_were(
    segment_name: str,
) -> None:
    with shmlimit.Limiter(segment_name, keys=10_000, workers=2, a="1/h burst 5") as limiter:
        blocks = os.stat(limiter.path).st_blocks
        told, tells = os.pipe()

        def work() -> None:
            draw = random.Random(1)
            for decisions in (10**5, 9 * 10**5):  # the first ones warm the interpreter up
                for _ in range(decisions // BATCH):
                    limiter["a"].hit_many([draw.randbytes(16) for _ in range(BATCH)])
                    limiter["a"].allow(draw.randbytes(16))
                os.write(tells, b"%8d" % own_memory_kib())

        with forked(work):
            before_kib, after_kib = int(os.read(told, 8)), int(os.read(told, 8))
        os.close(told)
        os.close(tells)
        assert after_kib - before_kib < 2048, "a decision on each key would be 100 MiB"
        counts = limiter.counters()["a"]
        assert counts["allowed"] + counts["denied"] == 10**6 + 10**6 // BATCH
        assert counts["contended"] == 0
        assert os.stat(limiter.path).st_size == limiter.size_bytes
        assert os.stat(limiter.path).st_blocks == blocks
        report = limiter.check()
        assert report.live <= report.slots


def own_memory_kib() -> int:
    """Of this process, without what it shares."""
    with open("/proc/self/status", encoding="ascii") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["RssAnon"].split()[0])


def test_ten_million_live_keys(segment_name: str, clock: Clock) -> None:
    space = os.statvfs(DIRECTORY)
    free_mib = space.f_bavail * space.f_frsize // MIB
    if free_mib < 400:
        pytest.skip(f"{DIRECTORY} has only {free_mib} MiB free of the 400 that this takes")
    with shmlimit.Limiter(
        segment_name, keys=KEYS, workers=1, clock=clock, a=f"1/h burst {BURST}"
    ) as limiter:
        limit = limiter["a"]
        assert limiter.size_bytes <= 512 * MIB
        assert limiter.size_bytes / KEYS <= 34
        for start in range(0, KEYS, BATCH):
            limit.hit_many(batch(start))

        counts = limiter.counters()["a"]
        assert counts["allowed"] == KEYS
        evicted = counts["evicted"]
        print(f"{evicted} of {KEYS} keys evicted, {limiter.size_bytes / KEYS:.1f} bytes a key")
        assert evicted < KEYS // 10_000, "two choices of four slots: sets are hardly ever full"
        report = limiter.check()
        assert report.live == KEYS - evicted
        assert (report.uncommitted, report.abandoned) == (0, 0)

        sampled = [d.remaining for start in range(0, KEYS, 100 * BATCH)
                   for d in limit.hit_many(batch(start), 0)]  # fmt: skip
        assert len(sampled) == KEYS // 100
        # One that was evicted starts full; its slot's new owner has its debt as well.
        assert sampled.count(BURST - 1) >= len(sampled) * 0.999
        drained = [d.allowed for d in limit.hit_many(batch(0), BURST - 1)]
        refused = [not d.allowed for d in limit.hit_many(batch(0))]
        assert min(sum(drained), sum(refused)) >= BATCH * 0.999
