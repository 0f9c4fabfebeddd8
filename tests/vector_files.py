"""Loads the test vectors, which independent programs in exact arithmetic have produced.

The full set is used where it lies beside the repository (../shared/vectors); a part of it, in the
same form, is in tests/vectors, so that a copy of the source alone can be tested too.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, cast

PART = Path(__file__).parent / "vectors"
FULL = Path(__file__).parents[2] / "shared" / "vectors"


class _StepBase(TypedDict):
    op: str  # "hit", "grant" or "share"
    t_ns: int


class Step(_StepBase, total=False):
    """`op` says which of these there are."""

    cost: int  # hit
    allowed: bool
    remaining: int
    retry_after_ns: int | None  # None: the cost exceeds the burst, so never
    reset_after_ns: int
    exact: list[Any]  # the four above in rational arithmetic, where it differs
    want: int  # grant: up to so many cells at once
    granted: int
    exact_granted: int  # likewise, in rational arithmetic
    hosts: int  # share: the host count from now on
    T_ticks: int
    tau_ticks: int


class Sequence(TypedDict):
    """One bucket that starts full, and what happens to it. Ticks are 1/16 ns."""

    id: int
    count: int
    period_ns: int
    burst: int
    hosts: int
    T_ticks: int
    tau_ticks: int
    exact: bool  # a cell is a whole number of ticks, before it is shared
    steps: list[Step]


def path(name: str) -> Path:
    """The file `name`.json, from the full set if it is there."""
    full = FULL / f"{name}.json"
    return full if full.is_file() else PART / f"{name}.json"


def load(name: str) -> Any:
    """FileNotFoundError: only the full set has that file, and it is not there."""
    return json.loads(path(name).read_text(encoding="utf-8"))


@cache
def gcra() -> tuple[Sequence, ...]:
    return _sequences(load("gcra"))


@cache
def gcra_part() -> tuple[Sequence, ...]:
    """The part that is kept here, whether or not the full set is there."""
    return _sequences(json.loads((PART / "gcra.json").read_text(encoding="utf-8")))


def _sequences(document: Any) -> tuple[Sequence, ...]:
    sequences = cast("tuple[Sequence, ...]", tuple(document["sequences"]))
    if not sequences:  # a loop over nothing would pass every test
        raise ValueError("the vectors hold no sequence")
    return sequences
