"""Random bytes written over a segment in use: no crash, no hang, only values and shmlimit's errors.

A process that maps a segment trusts nothing in it for a bound or an index. Each history runs in a
process of its own, so that a crash is seen as its exit code.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

import shmlimit
from shmlimit.errors import ShmlimitError
from tests.conftest import Clock
from tests.segment_file import (
    COUNTERS,
    HEADER_BYTES,
    LIMITS,
    SLOTS,
    SegmentFile,
)

fork = multiprocessing.get_context("fork")

SEEDS = range(4)
ROUNDS = 60
HANG_SECONDS = 100
KEYS: list[str | bytes] = ["", "x", b"\xff", *(f"key {number}" for number in range(30))]
U64_EDGES = (0, 1, 2, 3, 2**31, 2**32 - 1, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1)

Damage = Callable[[SegmentFile, random.Random], None]


def overwritten(section: int, file: SegmentFile, draw: random.Random) -> None:
    """Random bytes over all of a section."""
    _, item_bytes, offset, items = file.section(section)
    file.memory[offset : offset + item_bytes * items] = draw.randbytes(item_bytes * items)


def edged(section: int, file: SegmentFile, draw: random.Random) -> None:
    """Words that are the first or the last of some range, here and there."""
    _, item_bytes, offset, items = file.section(section)
    for _ in range(200):
        at = offset + 8 * draw.randrange(item_bytes * items // 8)
        file.memory[at : at + 8] = draw.choice(U64_EDGES).to_bytes(8, "little")


def mixed(section: int, file: SegmentFile, draw: random.Random) -> None:
    """Single bits, so that most of it still looks right."""
    _, item_bytes, offset, items = file.section(section)
    for _ in range(50):
        file.memory[offset + draw.randrange(item_bytes * items)] ^= 1 << draw.randrange(8)


def twinned(file: SegmentFile, draw: random.Random) -> None:
    """The words of one slot in many others: keys with several buckets, out of their lines."""
    for _ in range(50):
        fp, v = file.slot(draw.randrange(file.slots()))
        file.set_slot(draw.randrange(file.slots()), fp, draw.choice([v, v ^ 1, v + 2]))


def header_overwritten(file: SegmentFile, draw: random.Random) -> None:
    file.memory[:HEADER_BYTES] = draw.randbytes(HEADER_BYTES)


def header_claims_more(file: SegmentFile, draw: random.Random) -> None:
    """A geometry that would lead far outside of what is mapped."""
    file.set_header("lines", draw.choice([0, 1, 2**31, 2**63, 2**64 - 1]))
    file.set_header("worker_rows", draw.choice([0, 4096, 2**32 - 1]))
    file.set_header("segment_bytes", draw.choice([0, 2**40, 2**64 - 1]))
    for section in (LIMITS, COUNTERS, SLOTS):
        file.set_section(section, draw.randrange(9), 2**32 - 1, 2**40, 2**40)


def everything(file: SegmentFile, draw: random.Random) -> None:
    file.memory[:] = draw.randbytes(len(file.memory))


DAMAGES: dict[str, Damage] = {
    "slots": partial(overwritten, SLOTS),
    "slot edges": partial(edged, SLOTS),
    "slot bits": partial(mixed, SLOTS),
    "slot twins": twinned,
    "rows": partial(overwritten, LIMITS),
    "row edges": partial(edged, LIMITS),
    "row bits": partial(mixed, LIMITS),
    "counters": partial(overwritten, COUNTERS),
    "header": header_overwritten,
    "geometry": header_claims_more,
    "everything": everything,
}


def decide(limit: shmlimit.Limit, draw: random.Random) -> None:
    for call in (limit.hit, limit.peek):
        decision = call(draw.choice(KEYS), draw.randrange(3))
        assert type(decision.allowed) is bool
        assert type(decision.remaining) is int
        assert decision.remaining >= 0
        assert decision.retry_after_ns >= 0
        assert decision.reset_after_ns >= 0
        assert repr(decision)
    assert limit.allow(draw.choice(KEYS)) in (True, False)
    assert len(limit.hit_many(KEYS)) == len(KEYS)
    assert limit.clear(draw.choice(KEYS)) in ("cleared", "set_full", "contended")


def attempt(call: Callable[[], object]) -> None:
    """Any answer will do, and any error that shmlimit means to raise."""
    with suppress(ShmlimitError):
        call()


def history(segment_name: str, damage: Damage, seed: int) -> None:
    draw = random.Random(seed)
    clock = Clock()
    limiter = shmlimit.Limiter(
        segment_name, keys=40, workers=2, clock=clock, a="10/s burst 5", b="1/h burst 2"
    )
    with SegmentFile.of(limiter.path) as file:
        sound = bytes(file.memory)
        for _ in range(ROUNDS):
            file.memory[:] = sound
            for name in ("a", "b"):
                decide(limiter[name], draw)
            damage(file, draw)
            for name in ("a", "b"):
                for _ in range(3):
                    clock.ns += draw.randrange(10**8)
                    attempt(partial(decide, limiter[name], draw))
                limit = limiter[name]
                attempt(limit.reset)
                attempt(partial(getattr, limit, "rates"))
                attempt(partial(getattr, limit, "mode"))
            for call in (limiter.check, limiter.counters, limiter.worker_counters):
                attempt(call)
            attempt(lambda: list(limiter))
            attempt(lambda: limiter["another"])
            attempt(lambda: second_attach(segment_name, clock))
        file.memory[:] = sound
    limiter.close()


def second_attach(segment_name: str, clock: Clock) -> None:
    """A new process that comes to the damaged segment, and uses it if it gets that far."""
    with shmlimit.Limiter(segment_name, keys=40, workers=2, clock=clock, a="10/s burst 5") as other:
        other["a"].hit("x")
        other.check()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_random_damage_gives_values_or_errors(segment_name: str, damage: str, seed: int) -> None:
    child = fork.Process(target=history, args=(segment_name, DAMAGES[damage], seed))
    child.start()
    child.join(HANG_SECONDS)
    hung = child.exitcode is None
    if hung:
        child.kill()
        child.join()
    assert not hung, "a call did not come back"
    assert child.exitcode == 0, "killed by a signal (negative), or by an error of another kind"
