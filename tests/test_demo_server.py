"""The demo holds, and can fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

from demo.report import fault_of
from demo.server import ROOT


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "demo", "--seconds", "3", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    return done


def test_the_bound_holds_over_all_workers_and_a_kill() -> None:
    done = demo()
    assert done.returncode == 0
    assert "The bound held, over 4 workers and a kill" in done.stdout


def test_limiters_in_the_workers_own_memory_break_the_bound() -> None:
    done = demo("--broken")
    assert done.returncode == 1
    assert "BROKEN" in done.stdout


def test_a_run_within_the_bound_has_no_fault() -> None:
    assert fault_of(admitted=100, bound=100, after=50, bound_after=60, silent_workers=0) is None
    assert fault_of(admitted=95, bound=100, after=60, bound_after=60, silent_workers=0) is None


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"admitted": 101}, "101% of the bound"),
        ({"admitted": 94}, "only 94.0% of the bound"),
        ({"after": 61}, "after the kill"),
        ({"silent_workers": 1}, "1 workers admitted nothing"),
    ],
)
def test_each_fault_of_a_run_is_named(changed: dict[str, int], fault: str) -> None:
    sound = {"admitted": 100, "bound": 100, "after": 50, "bound_after": 60, "silent_workers": 0}
    assert fault in str(fault_of(**{**sound, **changed}))
