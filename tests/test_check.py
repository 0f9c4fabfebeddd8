"""check(): passes on a table in use, and finds every kind of damage with evidence for it."""

from __future__ import annotations

import mmap
import multiprocessing
import re
from collections.abc import Iterator

import pytest

import shmlimit
from shmlimit import _core
from shmlimit.errors import TableDamaged
from tests.conftest import Clock
from tests.segment_file import NUMBERS_FIELDS, SLOTS_PER_LINE, SegmentFile

fork = multiprocessing.get_context("fork")

SECOND = 10**9  # ns
AHEAD_TICKS_MAX = 2**61
(EMPTY_COMMITTED, KEY_NEVER_WRITTEN, WRONG_LINE, TWO_COMMITTED, STATE_TOO_FAR, ROW_NUMBERS,
 ROW_NAME) = range(1, 8)  # fmt: skip


@pytest.fixture
def limiter(segment_name: str, clock: Clock) -> Iterator[shmlimit.Limiter]:
    """Twenty keys in a table of many lines."""
    with shmlimit.Limiter(
        segment_name, keys=1000, workers=1, clock=clock, a="1/s burst 5", b="1/s"
    ) as made:
        assert all(made["a"].hit_many([f"key {number}" for number in range(20)]))
        yield made


@pytest.fixture
def file(limiter: shmlimit.Limiter) -> Iterator[SegmentFile]:
    with SegmentFile.of(limiter.path) as opened:
        yield opened


def evidence(limiter: shmlimit.Limiter) -> list[tuple[str, int, int, int, int]]:
    """What check() says: (slot or row, its index, damage, fp, v)."""
    with pytest.raises(TableDamaged) as found:
        limiter.check()
    first, *lines = str(found.value).splitlines()
    told = re.fullmatch(r"segment /shmlimit\S+: (\d+) broken invariants at tick \d+, .*:", first)
    assert told
    form = re.compile(r"  (slot|row) (\d+): (.*) \(fp (0x[0-9a-f]+), v (0x[0-9a-f]+)\)")
    kinds = {text: damage for damage, text in _core.DAMAGES.items()}
    parts = [form.fullmatch(line) for line in lines]
    listed = [
        (p[1], int(p[2]), kinds[p[3]], int(p[4], 16), int(p[5], 16)) for p in parts if p is not None
    ]
    assert len(listed) == min(int(told[1]), 32)
    return listed


def test_every_kind_of_damage_is_tested_here() -> None:
    kinds = {EMPTY_COMMITTED, KEY_NEVER_WRITTEN, WRONG_LINE, TWO_COMMITTED, STATE_TOO_FAR,
             ROW_NUMBERS, ROW_NAME}  # fmt: skip
    assert set(_core.DAMAGES) == kinds


def test_a_sound_table_is_reported(limiter: shmlimit.Limiter, clock: Clock) -> None:
    slots = _core.lines_for(1000) * SLOTS_PER_LINE
    assert limiter.check() == _core.CheckReport(
        slots=slots, unused=slots - 20, live=20, dead=0, uncommitted=0, abandoned=0,
        furthest_ahead_ns=SECOND, limits=2,
    )  # fmt: skip
    limiter["a"].hit("key 0", 3)
    limiter["a"].clear("key 1")
    clock.ns += SECOND + 1
    assert limiter.check() == _core.CheckReport(
        slots=slots, unused=slots - 20, live=1, dead=19, uncommitted=0, abandoned=0,
        furthest_ahead_ns=3 * SECOND - 1, limits=2,
    )  # fmt: skip


@pytest.mark.parametrize("fp", [0, 1])
def test_a_slot_without_a_key_that_was_consumed_from(
    limiter: shmlimit.Limiter, file: SegmentFile, fp: int
) -> None:
    index = file.used_slots()[3]
    v = file.slot(index)[1]
    file.set_slot(index, fp, v)
    assert evidence(limiter) == [("slot", index, EMPTY_COMMITTED, fp, v)]


@pytest.mark.parametrize("v", [0, 1])
def test_a_key_in_a_slot_that_was_never_written(
    limiter: shmlimit.Limiter, file: SegmentFile, v: int
) -> None:
    index = next(i for i in range(file.slots()) if file.slot(i) == (0, 0))
    file.set_slot(index, 0xABCDEF, v)
    assert evidence(limiter) == [("slot", index, KEY_NEVER_WRITTEN, 0xABCDEF, v)]


def test_a_key_outside_its_lines(limiter: shmlimit.Limiter, file: SegmentFile) -> None:
    index = file.used_slots()[0]
    fp, v = file.slot(index)
    file.set_slot(index, 0, 0)
    lines = file.slots() // SLOTS_PER_LINE
    first, second = (fp >> 32) * lines >> 32, (fp & 0xFFFFFFFF) * (lines - 1) >> 32
    own = {first, second + (second >= first)}
    assert index // SLOTS_PER_LINE in own
    foreign = next(
        i for i in range(file.slots())
        if i // SLOTS_PER_LINE not in own and file.slot(i) == (0, 0)
    )  # fmt: skip
    file.set_slot(foreign, fp, v)
    assert evidence(limiter) == [("slot", foreign, WRONG_LINE, fp, v)]


def test_a_key_with_two_buckets(limiter: shmlimit.Limiter, file: SegmentFile) -> None:
    index = file.used_slots()[0]
    fp, v = file.slot(index)
    line = index - index % SLOTS_PER_LINE
    beside = next(i for i in range(line, line + SLOTS_PER_LINE) if file.slot(i) == (0, 0))
    file.set_slot(beside, fp, v + 2)
    assert sorted(evidence(limiter)) == sorted([
        ("slot", index, TWO_COMMITTED, fp, v), ("slot", beside, TWO_COMMITTED, fp, v + 2),
    ])  # fmt: skip
    file.set_slot(beside, fp, v - 1)  # uncommitted: another process is about to agree
    assert limiter.check().uncommitted == 1


@pytest.mark.parametrize("fp", [None, 0, 1])
def test_a_state_further_ahead_than_a_burst_can_run(
    limiter: shmlimit.Limiter, file: SegmentFile, clock: Clock, fp: int | None
) -> None:
    index = file.used_slots()[-1]
    fp = file.slot(index)[0] if fp is None else fp
    assert file.header("epoch_ns") == clock.ns - SECOND
    now = 16 * SECOND
    far = now + 2 * AHEAD_TICKS_MAX
    file.set_slot(index, fp, far << 1)
    assert evidence(limiter) == [("slot", index, STATE_TOO_FAR, fp, far << 1)]
    file.set_slot(index, fp, (far - 1) << 1)
    assert limiter.check().furthest_ahead_ns == 2 * AHEAD_TICKS_MAX // 16


@pytest.mark.parametrize(("field", "value"), [
    ("interval_ticks", 0), ("interval_ticks", 2**63), ("burst_cells", 0), ("burst_cells", 2**61),
    ("tolerance_ticks", 0), ("tolerance_ticks", 2**61), ("rate_count", 0), ("rate_period_ns", 0),
    ("mode", 4), ("when_full", 3),
])  # fmt: skip
def test_numbers_that_cannot_be_used(
    limiter: shmlimit.Limiter, file: SegmentFile, field: str, value: int
) -> None:
    assert field in NUMBERS_FIELDS
    file.set_number(1, field, value)
    assert [found[:4] for found in evidence(limiter)] == [("row", 1, ROW_NUMBERS, 0)]


@pytest.mark.parametrize("name", [b"", b"x" * 56], ids=["empty", "without an end"])
def test_a_row_without_a_proper_name(
    limiter: shmlimit.Limiter, file: SegmentFile, name: bytes
) -> None:
    file.set_row_name(1, name)
    assert [found[:3] for found in evidence(limiter)] == [("row", 1, ROW_NAME)]


def test_much_damage_is_counted_and_the_first_is_listed(
    limiter: shmlimit.Limiter, file: SegmentFile
) -> None:
    for index in range(file.slots()):
        file.set_slot(index, 0, 3)
    listed = evidence(limiter)
    assert [found[1] for found in listed] == list(range(32))
    with pytest.raises(TableDamaged, match=f"{file.slots()} broken invariants"):
        limiter.check()


def hammer(limiter: shmlimit.Limiter, over: mmap.mmap) -> None:
    turn = 0
    while not over[0]:
        turn += 1
        for number in range(100):
            limiter["a"].allow(f"key {(number * turn) % 997}")
        limiter["b"].clear(f"key {turn % 97}")
        limiter["b"].allow(f"key {turn % 97}")


def test_a_table_in_use_is_sound_at_every_moment(segment_name: str) -> None:
    """Few slots that die within microseconds: claims, evictions and agreements all the time."""
    over = mmap.mmap(-1, 1)
    with shmlimit.Limiter(
        segment_name, keys=200, workers=4, a="200000/s burst 2", b="10000/s burst 2"
    ) as limiter:
        workers = [fork.Process(target=hammer, args=(limiter, over)) for _ in range(3)]
        try:
            for worker in workers:
                worker.start()
            reports: list[shmlimit.CheckReport] = []
            counted = 0
            while counted < 500_000 or len(reports) < 200:  # so that they met something
                reports.append(limiter.check())
                counted = sum(counts["allowed"] for counts in limiter.counters().values())
        finally:
            over[0] = 1
            for worker in workers:
                worker.join(60)
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
        assert {report.limits for report in reports} == {2}
        assert len({report.live for report in reports}) > 1
        limiter.check()
