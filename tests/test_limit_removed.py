"""A limit that its configuration names no more, and one that comes back."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from shmlimit import Limiter, Rate
from shmlimit.errors import LimitNotFound, LimitRemoved, WrongLayout
from shmlimit.segment_facts import facts_of
from shmlimit.segment_view import viewed
from tests.processes import forked
from tests.segment_file import SegmentFile

Write = Callable[..., None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shmlimit.toml"


@pytest.fixture
def write(file: Path, segment_name: str) -> Write:
    def limits(**rates: str) -> None:
        sections = (f'[limits.{name}]\nrate = "{rate}"\n' for name, rate in rates.items())
        file.write_text(f'[table]\nname = "{segment_name}"\nkeys = "1k"\n' + "".join(sections))

    return limits


@pytest.mark.parametrize("rate", ["10/h", "10/h; 20/d"])
def test_every_call_on_it_says_so_until_it_is_back(file: Path, write: Write, rate: str) -> None:
    write(a=rate, b="1/s")
    with Limiter.from_config(file) as limiter:
        limit = limiter["a"]
        assert limit.hit("x")
        write(b="1/s")
        limiter.reload()
        calls: list[Callable[[], object]] = [
            lambda: limit.hit("x"), lambda: limit.allow("x"), lambda: limit.peek("x"),
            lambda: limit.hit_many(["x"]), lambda: limit.reserve("x"), lambda: limit.acquire("x"),
            lambda: limit.charge("x", 1), lambda: limit.clear("x"), limit.reset,
            lambda: limit.limited(key="x")(len)("x"), lambda: limit.rates, lambda: limit.mode,
            lambda: limiter["a"], lambda: limiter.hit_all([("b", "x"), ("a", "x")]),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(LimitRemoved, match="limit 'a' was removed from the configuration"):
                call()
        assert repr(limit).startswith("<Limit 'a' removed of")
        assert limiter["b"].peek("x", 0).remaining == 1, "and nothing was taken from the other"
        with pytest.raises(LimitNotFound):
            limiter["c"]
        limiter.check()
        write(a=rate, b="1/s")
        limiter.reload()
        assert not limit.removed
        assert limit.hit("x").remaining == 9, "it begins afresh"
        assert limiter["a"] is not None
        assert limiter.counters()["a"]["allowed"] == 2, "but for its counters"


def test_other_processes_see_it_too(file: Path, write: Write) -> None:
    write(a="10/h", b="1/s")
    with Limiter.from_config(file) as limiter:
        limit = limiter["a"]
        limit.hit("x")
        go_reads, go_writes = os.pipe()
        done_reads, done_writes = os.pipe()

        def worker() -> None:
            limit.hit("x")
            os.write(done_writes, b"hit")
            os.read(go_reads, 1)
            with pytest.raises(LimitRemoved):
                limit.hit("x")
            os.write(done_writes, b"end")

        with forked(worker, ready=False):
            assert os.read(done_reads, 3) == b"hit"
            write(b="1/s")
            limiter.reload()
            os.write(go_writes, b"1")
            assert os.read(done_reads, 3) == b"end"
        for descriptor in (go_reads, go_writes, done_reads, done_writes):
            os.close(descriptor)


def test_limits_made_in_code_are_not_removed_by_a_reload(file: Path, write: Write) -> None:
    write(a="10/h")
    with Limiter.from_config(file) as limiter, Limiter(limiter.name, keys=1000, c="1/h") as code:
        write(b="10/h")
        limiter.reload()
        assert code["c"].hit("x")
        assert set(limiter) == {"b", "c"}


def test_code_that_names_it_makes_it_anew(file: Path, write: Write) -> None:
    write(a="10/h", b="1/s")
    with Limiter.from_config(file) as limiter:
        limit = limiter["a"]
        limit.hit("x")
        write(b="1/s")
        limiter.reload()
        with Limiter(limiter.name, keys=1000, a="5/h") as code:
            assert code["a"].hit("x").remaining == 4
            assert limit.peek("x", 0).remaining == 4


def test_another_algorithm_forgets_its_keys_and_is_refused_by_those_who_do_not_know_it(
    segment_name: str,
) -> None:
    with Limiter(segment_name, keys=100, a="10/d") as limiter:
        assert limiter["a"].hit("x").remaining == 9
        with SegmentFile.of(limiter.path) as file:
            file.set_number(0, "algorithm", 2)
        told = r"by algorithm 2, which this version .* upgrade it"
        with Limiter(segment_name, keys=100) as older, pytest.raises(WrongLayout, match=told):
            older["a"].hit("x")
        table, rates = limiter._segment.table, Rate.parse_several("10/d")
        table.publish("a", rates)
        assert limiter["a"].hit("x").remaining == 9, "its words mean something else by now"
        table.publish("a", rates, "shadow")
        assert limiter["a"].hit("x").remaining == 8


def test_a_first_reload_removes_nothing_that_code_made(file: Path, write: Write) -> None:
    write(a="10/h")
    name = Path(file.read_text().split('"')[1]).name
    with Limiter(name, keys=1000, a="1/h", c="1/h") as limiter:
        limiter.reload(file)
        assert list(limiter) == ["a", "c"]
        write(b="10/h")
        limiter.reload()
        assert list(limiter) == ["c", "b"], "the file had named a"


def test_who_has_the_limit_already_no_longer_gets_it_by_its_name(file: Path, write: Write) -> None:
    write(a="10/h", b="1/s")
    with Limiter.from_config(file) as limiter, Limiter(limiter.name, keys=1000) as other:
        limit = other["a"]
        assert limit.hit("x")
        write(b="1/s")
        limiter.reload()
        with pytest.raises(LimitRemoved) as removed:
            other["a"]
        assert removed.value.name == "a"
        assert str(pickle.loads(pickle.dumps(removed.value))) == str(removed.value)
        write(a="10/h", b="1/s")
        limiter.reload()
        assert other["a"] is limit


def test_a_removed_limit_is_not_there_but_in_its_counters(file: Path, write: Write) -> None:
    write(a="10/h; 20/d", b="1/s")
    with Limiter.from_config(file) as limiter:
        limiter["a"].hit("x")
        write(b="1/s")
        limiter.reload()
        assert (list(limiter), len(limiter), "a" in limiter) == (["b"], 1, False)
        assert limiter.counters()["a"]["allowed"] == 1
        assert next(iter(limiter.worker_counters().values()))["a"]["allowed"] == 1
        with viewed(limiter.name, os.geteuid()) as view:
            facts = facts_of(view, None)
        assert list(facts["limits"]) == ["b"]
        assert facts["counters"]["a"]["allowed"] == 1


def test_a_reload_puts_an_unknown_algorithm_right_and_says_so(
    file: Path, write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    write(a="10/d")
    with Limiter.from_config(file) as limiter:
        limiter["a"].hit("x")
        with SegmentFile.of(limiter.path) as segment:
            segment.set_number(0, "algorithm", 2)
        limiter.reload()
        assert limiter["a"].hit("x").remaining == 9
    (message,) = caplog.messages
    assert "ran at an algorithm that this version does not know and runs at 10/d" in message
