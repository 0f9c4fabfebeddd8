"""A segment met from a time namespace whose clock has another origin."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shmlimit import Limiter

FAR_S = 1_000_000  # how far the other namespace's clock is ahead
ELSEWHERE = ("unshare", "--time", "--monotonic", str(FAR_S), "--fork")
HIT = """
import sys, shmlimit
try:
    with shmlimit.Limiter(sys.argv[1], keys=100, a="10/h") as limiter:
        print("remaining", limiter["a"].hit("x").remaining)
except shmlimit.errors.SegmentError as error:
    print(type(error).__name__, error)
"""
LEAVE = "import os, shmlimit, sys; shmlimit.Limiter(sys.argv[1], keys=100, a='10/h'); os._exit(0)"


@pytest.fixture(autouse=True)
def namespaces() -> None:
    try:
        subprocess.run([*ELSEWHERE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no time namespace can be made here (unshare is missing or not allowed)")


def run(name: str, code: str, *command: str) -> str:
    done = subprocess.run(
        [*command, sys.executable, "-c", code, name], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_segment_that_is_in_use_is_refused_there_and_nothing_is_refilled(
    segment_name: str,
) -> None:
    with Limiter(segment_name, keys=100, a="10/h") as limiter:
        for _ in range(10):
            assert limiter["a"].hit("x")
        told = run(segment_name, HIT, *ELSEWHERE)
        assert told.startswith("ForeignTimeNamespace")
        assert "use another segment name" in told
        assert not limiter["a"].hit("x")


def test_one_that_was_left_there_is_made_anew_here(segment_name: str) -> None:
    run(segment_name, LEAVE, *ELSEWHERE)
    assert run(segment_name, HIT) == "remaining 9"
