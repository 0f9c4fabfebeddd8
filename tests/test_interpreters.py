"""Several interpreters in one process: the first that imports shmlimit has it, the others are told.

Each case is a process of its own, since what an interpreter imported stays with its process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PREAMBLE = """
import sys

if sys.version_info >= (3, 13):
    import _interpreters as interpreters
else:
    import _xxsubinterpreters as interpreters

def other(own_gil):
    if sys.version_info >= (3, 13):
        return interpreters.create("isolated" if own_gil else "legacy")
    return interpreters.create(isolated=own_gil)

ATTEMPT = '''
try:
    import shmlimit
except ImportError as error:
    print("refused:", error)
else:
    print("imported")
'''
"""

ONE_INTERPRETER = "refused: Interpreter change detected - this module can only be loaded into one"


def run(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_after_the_main_interpreter_no_other_imports_it(segment_name: str) -> None:
    printed = run(
        f"""
import shmlimit
with shmlimit.Limiter({segment_name!r}, keys=100, a="1/h") as limiter:
    print(limiter["a"].allow("x"))
    one = other(own_gil=False)
    interpreters.run_string(one, ATTEMPT)
    interpreters.destroy(one)
    print(limiter["a"].allow("x"), limiter["a"].allow("y"))
"""
    )
    assert printed[0] == "True"
    assert printed[1].startswith(ONE_INTERPRETER)
    assert printed[2:] == ["False True"]


def test_the_first_that_imports_it_may_be_another_than_the_main_one() -> None:
    printed = run(
        """
first, second = other(own_gil=False), other(own_gil=False)
interpreters.run_string(first, ATTEMPT)
interpreters.run_string(second, ATTEMPT)
exec(ATTEMPT)
interpreters.run_string(first, ATTEMPT)
"""
    )
    assert printed[0] == printed[3] == "imported"
    assert all(line.startswith(ONE_INTERPRETER) for line in printed[1:3])


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="all interpreters of Python 3.11 share one GIL"
)
def test_an_interpreter_with_a_gil_of_its_own_never_imports_it() -> None:
    (printed,) = run("interpreters.run_string(other(own_gil=True), ATTEMPT)")
    assert printed == "refused: module shmlimit._core does not support loading in subinterpreters"
