"""The worlds that are explored.

Ticks are few: T is 1 to 3, a burst 1 to 6 cells. The clock starts at 12 where slots never used
must stay dead while they are fought for: every write raises a state by one tick, and in the
product a state of 0 is far behind any now. Worlds at the EDGE start at 3, where a few writes make
a slot live.

Two processes of one key claim different slots only if they saw different slots as dead. So in most
worlds the first candidate is a stranger's that dies while the clock moves (DYING).
"""

from __future__ import annotations

from .memory import Key, Limit, Row
from .process import Call, Clear, Hit, Reset
from .scenario import Before, Scenario

BURST_1 = Limit(2, 2)
BURST_2 = Limit(2, 4)
BURST_4 = Limit(2, 8)
BURST_5 = Limit(2, 10)
FINE = Limit(1, 6)
SLOW = Limit(3, 3)
SLOW_2 = Limit(3, 6)

K, L, V, W = range(4)  # places of the keys in a world
NOW = (12,)  # a frozen clock
MOVING = (12, 13, 14, 15)
EDGE = (3, 4, 5)


def one_set(slots: int, *limits: Limit) -> tuple[Key, ...]:
    """Keys K, L, V, W, as many as limits, all with the same candidates in the same order."""
    named = zip("KLVW", limits, strict=False)
    return tuple(Key(name, limit, tuple(range(slots))) for name, limit in named)


def deny(limit: Limit) -> Limit:
    return limit._replace(when_full="deny")


def hits(key: int, count: int = 1, cells: int = 1) -> tuple[Call, ...]:
    return (Hit(key, cells),) * count


def made(*calls: Call) -> tuple[Before, ...]:
    """Calls before the exploration, at the time of NOW."""
    return tuple(Before(NOW[0], call) for call in calls)


CLEAR: tuple[Call, ...] = (Clear(K),)
DYING = (Before(10, Hit(L)),)  # under SLOW: live at 13, dead at 14
FULL = made(Hit(V), Hit(W))  # two slots, both live
ORPHANS = (*FULL, Before(12, Hit(K), "COMMIT_READ"), Before(12, Hit(L), "COMMIT_READ"))
# A slot abandoned at 15, one of W at 22, one of V at 18. Of the last two only the second can be
# taken over by K, none by L, which takes the first: until then K prefers the third, afterwards the
# first. So two newcomers of K can pick different victims on a frozen clock.
UNEQUAL = made(Hit(W), Clear(W), *hits(W, 5), *hits(V, 3))

TWINS_KEYS = one_set(2, BURST_2, SLOW)
EVICT_KEYS = one_set(2, BURST_4, BURST_4, BURST_2, BURST_2)
UNEQUAL_KEYS = one_set(3, BURST_5, FINE, BURST_4, BURST_5)

# fmt: off
ONE_KEY = (
    Scenario(
        "two_same", "2 processes, 1 key, a frozen clock",
        one_set(2, BURST_2), (hits(K, 3),) * 2, 2, NOW, lossless=(K,),
    ),
    Scenario(
        "twins", "2 processes, 1 key, that may claim different slots",
        TWINS_KEYS, (hits(K, 2),) * 2, 2, MOVING, DYING, lossless=(K,),
    ),
    Scenario(
        "twins_killed", "the same, and one of them is killed at any step",
        TWINS_KEYS, (hits(K, 2),) * 2, 2, MOVING, DYING, kills=1, lossless=(K,),
    ),
    Scenario(
        "twins_split", "the same, a slot's v and fp read in two steps",
        TWINS_KEYS, (hits(K, 2),) * 2, 2, MOVING, DYING, split_reads=True, lossless=(K,),
    ),
    Scenario(
        "twins_costs", "hits of 1 and of 2 cells",
        TWINS_KEYS, (hits(K, 2), hits(K, 2, cells=2)), 2, MOVING, DYING, lossless=(K,),
    ),
    Scenario(
        "three_same", "3 processes, 1 key, 3 slots",
        one_set(3, BURST_2, SLOW), (hits(K, 2),) * 3, 3, MOVING, DYING, lossless=(K,),
    ),
    Scenario(
        "three_killed", "3 processes, 1 key, 2 of them are killed at any step",
        TWINS_KEYS, (hits(K, 2),) * 3, 2, MOVING, DYING, kills=2, lossless=(K,),
    ),
)

SEVERAL_KEYS = (
    Scenario(
        "one_other", "2 processes on 1 key, 1 on another",
        one_set(3, BURST_2, SLOW), (hits(K, 2), hits(K, 2), hits(L, 2)), 3, MOVING, DYING,
        lossless=(K,),
    ),
    Scenario(
        "two_limits", "3 keys, 3 limits, 2 slots, in opposite orders, when_full = deny",
        (
            Key("K", deny(BURST_2), (0, 1)),
            Key("L", deny(SLOW_2), (1, 0)),
            Key("V", deny(BURST_1), (0, 1)),
        ),
        (hits(K, 2), hits(L), hits(V)), 2, (8, 10, 12),
    ),
    Scenario(
        "reclaim", "a dead slot is reclaimed while others are in mid-scan",
        one_set(2, BURST_1, BURST_1), (hits(K), hits(K), hits(L)), 2, (6, 7, 8, 9),
    ),
    Scenario(
        "reclaim_split", "the same, a slot's v and fp read in two steps",
        one_set(2, BURST_1, BURST_1), (hits(K), hits(K), hits(L)), 2, (6, 9), split_reads=True,
    ),
    Scenario(
        "orphan_twin", "a claim left by the dead, and the key's committed slot is reclaimed",
        TWINS_KEYS, (hits(K), hits(K, 2), hits(L)), 2, (12, 14, 17), DYING, kills=1,
    ),
    Scenario(
        "edge", "slots that a few writes make live",
        one_set(2, BURST_2, BURST_1), (hits(K, 2), hits(K), hits(L)), 2, EDGE,
    ),
)

EVICTION = (
    Scenario(
        "evict_same", "2 newcomers of 1 key with different victims",
        UNEQUAL_KEYS, (hits(K, 2), hits(K, 2), hits(L), hits(V)), 3, NOW, UNEQUAL, conserves=True,
    ),
    Scenario(
        "evict_two", "2 newcomers of 2 keys, victims still in use",
        EVICT_KEYS, (hits(K, 2), hits(L, 2), hits(V), hits(W)), 2, NOW, FULL, conserves=True,
    ),
    Scenario(
        "evict_tight", "2 newcomers that can take over not a tick more",
        one_set(2, BURST_2, BURST_2, Limit(1, 1), Limit(1, 1)), (hits(K), hits(L)), 2, NOW, FULL,
        conserves=True,
    ),
    Scenario(
        "evict_costs", "newcomers of 1 key whose hits cost 1 and 2 cells",
        UNEQUAL_KEYS, (hits(K, 2), hits(K, 1, cells=2), hits(L)), 3, NOW, UNEQUAL, conserves=True,
    ),
    Scenario(
        "evict_moving", "3 newcomers of 2 keys while the victims die",
        EVICT_KEYS, (hits(K, 2), hits(K, 2), hits(L)), 2, MOVING, FULL,
    ),
    Scenario(
        "evict_killed", "newcomers are killed at any step, twins with debt among them",
        UNEQUAL_KEYS, (hits(K, 2), hits(K, 2), hits(L)), 3, NOW, UNEQUAL, kills=2, conserves=True,
    ),
    Scenario(
        "evict_orphans", "a set full of claims left by the dead",
        EVICT_KEYS, (hits(K), hits(K), hits(L, 2), hits(V)), 2, NOW, ORPHANS, conserves=True,
    ),
    Scenario(
        "evict_split", "a slot's v and fp read in two steps",
        EVICT_KEYS, (hits(K), hits(K), hits(L), hits(V)), 2, NOW, FULL, split_reads=True,
        conserves=True,
    ),
)

CLEARING = (
    Scenario(
        "clear", "a clear races with hits",
        one_set(3, BURST_2), (hits(K, 3), hits(K, 3), CLEAR), 3, NOW, lossless=(K,),
    ),
    Scenario(
        "clear_twins", "a clear races with hits that claimed different slots",
        one_set(4, BURST_2, SLOW), (hits(K, 2), hits(K, 2), CLEAR), 4, (12, 14), DYING,
    ),
    Scenario(
        "clear_twice", "2 clears race with each other and with hits",
        one_set(3, BURST_2), (hits(K, 2), hits(K, 2), CLEAR, CLEAR), 3, NOW, lossless=(K,),
    ),
    Scenario(
        "clear_thrice", "3 clears, 2 of which may have read the set long ago",
        one_set(3, BURST_1), (hits(K, 4), CLEAR, CLEAR, CLEAR), 3, NOW, lossless=(K,),
    ),
    Scenario(
        "clear_other", "a clear, hits and a newcomer of another key",
        one_set(3, BURST_2, BURST_2), (hits(K, 2), hits(L), CLEAR), 3, NOW,
    ),
    Scenario(
        "clear_strangers", "strangers hold the other slots, when_full = evict",
        one_set(3, BURST_4, SLOW, BURST_2, BURST_2), (hits(K, 4), hits(V), CLEAR), 3, NOW, FULL,
    ),
    Scenario(
        "clear_denied", "strangers hold the other slots, when_full = deny",
        one_set(3, deny(BURST_2), SLOW, BURST_2, BURST_2), (hits(K, 2), CLEAR), 3, NOW, FULL,
    ),
    Scenario(
        "clear_evicted", "a clear and 2 newcomers while the victims die",
        one_set(2, BURST_5, BURST_5, BURST_2, SLOW), (hits(K, 2), hits(L, 2), CLEAR), 2,
        (12, 14, 16), FULL, crowded=True,
    ),
    Scenario(
        "clear_killed", "2 of the hits and the clear are killed at any step",
        one_set(3, BURST_2), (hits(K, 2), hits(K, 2), CLEAR), 3, NOW, kills=2, lossless=(K,),
    ),
    Scenario(
        "clear_split", "a slot's v and fp read in two steps",
        one_set(3, BURST_2), (hits(K, 2), hits(K, 2), CLEAR), 3, NOW, split_reads=True,
        lossless=(K,),
    ),
    Scenario(
        "eight_clears", "8 candidates, 8 times hit and clear: never locked out",
        one_set(8, BURST_2), ((Hit(K), Clear(K)) * 8 + hits(K, 3),), 8, NOW, lossless=(K,),
    ),
)

# Before the first publication of a reset the idle buffer holds garbage, as left by a publisher
# that was killed.
RESETTING = (
    Scenario(
        "reset", "hits race with a reset, which is killed at any step",
        (Key("K", BURST_2, (0, 1)), Key("K'", SLOW, (1, 0))),
        (hits(K, 3), hits(K, 3), (Reset(1, SLOW.interval),)), 2, NOW, kills=1,
        row=Row(2, ((0, BURST_2.interval), (9, 9))), salts=2, lossless=(0, 1),
    ),
    Scenario(
        "reset_twice", "hits race with 2 resets",
        (Key("K", BURST_2, (0, 1, 2)), Key("K'", SLOW, (2, 1, 0)), Key("K''", FINE, (2, 0, 1))),
        (hits(K, 2), hits(K, 2), (Reset(1, SLOW.interval), Reset(2, FINE.interval))), 3, NOW,
        row=Row(2, ((0, BURST_2.interval), (9, 9))), salts=3, lossless=(0, 1, 2),
    ),
)

LONG = (
    Scenario(
        "long_three_same", "3 processes, 1 key, 4 slots, a longer clock",
        one_set(4, BURST_2, SLOW), (hits(K, 3),) * 3, 4, (*MOVING, 16), DYING, lossless=(K,),
        long=True,
    ),
    Scenario(
        "long_two_limits", "as two_limits, more hits",
        (
            Key("K", deny(BURST_2), (0, 1)),
            Key("L", deny(SLOW_2), (1, 0)),
            Key("V", deny(BURST_1), (0, 1)),
        ),
        (hits(K, 2), hits(L, 2), hits(V, 2)), 2, MOVING, long=True,
    ),
    Scenario(
        "long_reclaim", "as reclaim, more hits",
        one_set(2, BURST_1, BURST_1), (hits(K, 2), hits(K, 2), hits(L)), 2, MOVING, long=True,
    ),
    Scenario(
        "long_orphan_twin", "as orphan_twin, with a third process of the key",
        TWINS_KEYS, (hits(K), hits(K), hits(K), hits(L)), 2, (12, 14, 17), DYING, kills=1,
        long=True,
    ),
    Scenario(
        "long_edge", "as edge, a longer clock",
        one_set(2, BURST_2, BURST_1), (hits(K, 2), hits(K), hits(L)), 2, (3, 4, 5, 6), long=True,
    ),
    Scenario(
        "long_evict", "as evict_same, while the victims die",
        UNEQUAL_KEYS, (hits(K, 2), hits(K, 2), hits(L), hits(V)), 3, (12, 14), UNEQUAL, long=True,
    ),
    Scenario(
        "long_clear_other", "as clear_other, with a second process of the key",
        one_set(3, BURST_2, BURST_2), (hits(K, 2), hits(K), hits(L), CLEAR), 3, NOW, long=True,
    ),
    Scenario(
        "long_clear_evicted", "as clear_evicted, 3 slots",
        one_set(3, BURST_5, BURST_5, BURST_2, SLOW), (hits(K, 2), hits(K), hits(L), CLEAR), 3,
        (12, 16), FULL, crowded=True, long=True,
    ),
)
# fmt: on

SCENARIOS = {
    scenario.name: scenario
    for scenario in (*ONE_KEY, *SEVERAL_KEYS, *EVICTION, *CLEARING, *RESETTING, *LONG)
}

CAUGHT_IN: dict[str, tuple[str, str]] = {
    "no_rescan": ("twins", "single"),
    "clock_before_scan": ("reclaim", "window"),
    "consuming_claim": ("twins", "single"),
    "evict_committed": ("evict_same", "single"),
    "own_slot_in_order": ("three_same", "single"),
    "kill_keeps_v": ("clear", "(M)"),
    "victim_off_by_one": ("evict_two", "full"),
    "clear_again": ("clear_twins", "clear"),
    "clear_ignores_strangers": ("clear_denied", "clear"),
    "clear_counts_early": ("clear_thrice", "clear"),
}
"""Broken variant -> the scenario that catches it, and the invariant it breaks first there."""

OVER_ADMITS: dict[str, str] = {
    "no_rescan": "twins",
    "clock_before_scan": "reclaim",
    "consuming_claim": "twins",
    "evict_committed": "edge",
    "own_slot_in_order": "three_same",
}
"""Broken variant -> a scenario in which it breaks the window bound, whatever else it breaks."""
