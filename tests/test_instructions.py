"""The regression gate: what a decision costs, in instructions, which no other load can disturb."""

from __future__ import annotations

import os
import shutil

import pytest

from bench import instructions


def test_a_decision_takes_no_more_instructions_than_recorded() -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed: nothing can count instructions")
    if os.environ.get("SHMLIMIT_BUILD"):
        pytest.skip("SHMLIMIT_BUILD is set: the record is of the product's own build")
    environment = instructions.environment()
    recorded = instructions.read_record().get(environment)
    if recorded is None:
        pytest.skip(
            f"no record for {environment}: make one with `python -m bench.instructions --record`"
        )
    assert instructions.regressions(instructions.count_all(), recorded) == []


def test_every_record_covers_both_methods() -> None:
    record = instructions.read_record()
    assert record, f"{instructions.RECORD} is missing or empty"
    for environment, counts in record.items():
        assert sorted(counts) == sorted(instructions.METHODS), environment
        assert all(count > 0 for count in counts.values()), environment


@pytest.mark.parametrize("method", instructions.METHODS)
def test_a_count_five_percent_above_its_record_is_refused(method: str) -> None:
    counted = {"allow": 400, "hit": 500}
    lowered = counted | {method: counted[method] * 95 // 100}
    (refusal,) = instructions.regressions(counted, lowered)
    assert refusal.startswith(f"{method}: {counted[method]} instructions")
    assert "--record" in refusal


def test_a_count_within_two_percent_of_its_record_passes() -> None:
    recorded = {"allow": 400, "hit": 500}
    assert instructions.regressions({"allow": 408, "hit": 510}, recorded) == []
    assert len(instructions.regressions({"allow": 409, "hit": 511}, recorded)) == 2


def test_fewer_instructions_than_recorded_pass() -> None:
    assert instructions.regressions({"allow": 1, "hit": 1}, {"allow": 400, "hit": 500}) == []
