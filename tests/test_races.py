"""The slot protocol under real races, forced races and kills; and a broken one, which must fail.

The rigs run the headers that the extension is made of. Each bound is exact: its in-flight slack is
named where there is one.
"""

from __future__ import annotations

import os

import pytest

from . import rigs

SOAK = int(os.environ.get("SHMLIMIT_SOAK", "1"))  # how many times longer

NO_RESCAN = "-DSHMLIMIT_BAD_NO_RESCAN"
EVICT, DENY = 0, 1
# enum sync_point
SCANNED, STEP, CLAIM, CLAIMED, EVICTING, KILL, COMMIT_READ, COMMIT, CLEAR_COUNT, ABANDON = range(10)

# processes, keys, lines, decisions, interval ns, burst: slots die and are reclaimed all the time
CHURN = (4, 12, 2, 200_000 * SOAK, 500, 1)
CHURN_BURST = (4, 12, 2, 200_000 * SOAK, 3000, 2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("churn", [CHURN, CHURN_BURST])
def test_no_window_of_any_length_admits_too_much(churn: tuple[int, ...], seed: int) -> None:
    told = rigs.run(rigs.build("window"), *churn, seed)
    assert told["violations"] == 0
    assert told["damages"] == 0
    assert told["contended"] == 0
    assert told["retried"] > 1000, "the processes never met: this run proves nothing"


@pytest.mark.parametrize("seed", range(2))
def test_no_window_admits_too_much_while_processes_are_killed(seed: int) -> None:
    told = rigs.run(rigs.build("window"), *CHURN, seed, 500)
    assert told["violations"] == 0
    assert told["damages"] == 0


def test_the_window_rig_finds_a_protocol_without_the_rescan() -> None:
    told = rigs.run(rigs.build("window", NO_RESCAN), *CHURN, 1)
    assert told["violations"] > 0


@pytest.mark.parametrize("seed", range(4))
def test_calls_inside_calls_admit_no_more_than_the_bound(seed: int) -> None:
    told = rigs.run(rigs.build("nested"), 20_000 * SOAK, seed, DENY, 0)
    assert told["violations"] == 0
    assert told["damages"] == 0
    for point in (SCANNED, STEP, CLAIM, CLAIMED, COMMIT_READ, COMMIT):
        assert told[f"reached_{point}"] > 1000


def test_calls_inside_calls_hand_evicted_debt_on() -> None:
    told = rigs.run(rigs.build("nested"), 100_000 * SOAK, 1, EVICT, 0, 6)
    assert told["dropped"] == 0
    assert told["damages"] == 0
    assert told[f"reached_{EVICTING}"] > 1000
    assert told[f"reached_{KILL}"] > 0


def test_clears_inside_calls_forgive_once_each() -> None:
    told = rigs.run(rigs.build("nested"), 20_000 * SOAK, 1, DENY, 1)
    assert told["violations"] == 0
    assert told["damages"] == 0
    assert told[f"reached_{CLEAR_COUNT}"] > 1000
    assert told[f"reached_{ABANDON}"] > 1000


def test_the_nested_rig_finds_a_protocol_without_the_rescan() -> None:
    told = rigs.run(rigs.build("nested", NO_RESCAN), 5_000, 1, DENY, 0)
    assert told["violations"] > 0


def test_a_thousand_kills_lose_only_what_was_in_flight() -> None:
    told = rigs.run(rigs.build("kills"), 4, 3_000_000, 16, 1000 * SOAK, 1)
    assert told["kills"] >= 1000
    assert told["keys_over"] == 0
    assert told["keys_under"] == 0, "a key lost more cells than were in flight on it at the kills"
    assert told["burst_total"] - told["in_flight"] <= told["admitted"] <= told["burst_total"]
    assert told["damages"] == 0
    assert told["attempts_max"] < 256
    assert told["admitted_at_end"] > 0, "the bursts were used up before the last kill"
    for point in (SCANNED, STEP, CLAIM, CLAIMED, COMMIT_READ, COMMIT):
        assert told[f"died_at_{point}"] > 0


@pytest.mark.parametrize(("rig", "arguments"), [
    ("window", (3, 12, 2, 20_000, 500, 1, 1)),
    ("nested", (2_000, 1, EVICT, 0, 6)),
    ("nested", (2_000, 1, DENY, 1)),
])  # fmt: skip
def test_the_sanitizers_find_nothing(rig: str, arguments: tuple[int, ...]) -> None:
    told = rigs.run(rigs.build(rig, *rigs.SANITIZERS), *arguments)
    assert told["damages"] == 0
