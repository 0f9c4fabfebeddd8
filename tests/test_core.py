"""The compiled core by hand: what is not meant for users must still refuse, not crash."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import shmlimit
from shmlimit import _core


@pytest.mark.parametrize(("interval_ticks", "tolerance_ticks"), [(0, 0), (0, 5), (6, 5)])
def test_a_step_refuses_numbers_that_no_limit_has(
    interval_ticks: int, tolerance_ticks: int
) -> None:
    with pytest.raises(ValueError, match=r"1\.\.tolerance_ticks"):
        _core.step(0, 1, interval_ticks, tolerance_ticks, 1)


def test_a_decision_is_not_made_by_hand() -> None:
    with pytest.raises(TypeError, match="not made by hand"):
        shmlimit.Decision()
    make: Any = shmlimit.Decision.__new__
    blank = make(shmlimit.Decision)
    assert (blank.allowed, blank.remaining, blank.retry_after_ns) == (False, 0, 0)


def test_a_limit_has_a_row_of_its_table(segment_name: str) -> None:
    with shmlimit.Limiter(segment_name, keys=100, a="1/s") as limiter:
        table = limiter._segment.table
        by_hand = shmlimit.Limit(table, 0, "a")  # type: ignore[call-arg]
        assert by_hand.hit("x").name == "a"
        with pytest.raises(ValueError, match=r"0\.\.255"):
            shmlimit.Limit(table, 256, "b")  # type: ignore[call-arg]
        unused = shmlimit.Limit(table, 255, "c")  # type: ignore[call-arg]
        with pytest.raises(shmlimit.TableDamaged):
            unused.hit("x")


def test_a_table_is_neither_pickled_nor_copied(segment_name: str) -> None:
    with shmlimit.Limiter(segment_name, keys=100, a="1/s") as limiter:
        table: Any = limiter._segment.table
        with pytest.raises(TypeError, match="pickle"):
            pickle.dumps(table)
        with pytest.raises(TypeError, match="pickle"):
            copy.copy(table)
        things: list[Any] = [table, limiter["a"], limiter["a"].hit("x")]
        for thing in things:
            assert not hasattr(thing, "__setstate_cython__")


def test_a_closed_limit_still_has_a_repr(segment_name: str) -> None:
    limiter = shmlimit.Limiter(segment_name, keys=100, a="1/s")
    limit = limiter["a"]
    assert "1/s" in repr(limit)
    limiter.close()
    assert repr(limit) == f"<Limit 'a' closed of {limit_path(limiter)}>"


def limit_path(limiter: shmlimit.Limiter) -> str:
    return f"/{limiter.path.name}"
