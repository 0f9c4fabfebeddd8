"""The types that users see: the stub agrees with the compiled module, and says what it promises."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "pyproject.toml"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mypy") is None, reason="mypy is not installed (extra: lint)"
)

# What Cython makes of classes, and what only the compiled module has.
ALLOWED = r"""
shmlimit\._core\.__test__  # for doctest
shmlimit\._core\.Decision\.__init__  # never returns, whatever it is given
shmlimit\._core\.Hosts\.__init__  # the parameters are those of __cinit__, which shows none
shmlimit\._core\.Table\.__init__  # the parameters are those of __cinit__, which shows none
"""

CONSUMER = '''
"""Ordinary use, typed strictly. A line that has to be refused says so with its error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, assert_type

import shmlimit
from shmlimit import (
    CheckReport, Decision, Decisions, Key, Limit, Limiter, Rate, RateLimitExceeded, Reset,
)
from shmlimit.testing import FakeClock, limiters

limiter = Limiter("shop", per_ip="100/s", per_key=Rate.parse("5/min"), keys=1000, workers=4)
assert_type(limiter, Limiter)
assert_type(Limiter.from_config(), Limiter)
assert_type(limiter.path, Path)
assert_type(limiter.size_bytes, int)
assert_type(limiter.check(), CheckReport)
assert_type(limiter.check().live, int)
assert_type(limiter.counters(), dict[str, dict[str, int]])
assert_type(limiter.worker_counters(), dict[int, dict[str, dict[str, int]]])
assert_type(iter(limiter), Iterator[str])
assert_type("per_ip" in limiter, bool)
with limiter as entered:
    assert_type(entered, Limiter)

limit = limiter["per_ip"]
assert_type(limit, Limit)
assert_type(limit.name, str)
assert_type(limit.rates, tuple[Rate, ...])
assert_type(limit.mode, str)
assert_type(limit.when_full, str)
assert_type(limit.key, str | None)
decision = limit.hit("x", cost=2)
assert_type(decision, Decision)
assert_type(bool(decision), bool)
assert_type(decision.allowed, bool)
assert_type(decision.shadow, bool)
assert_type(decision.name, str)
assert_type(decision.limit, int)
assert_type(decision.remaining, int)
assert_type(decision.retry_after, float)
assert_type(decision.retry_after_ns, int)
assert_type(decision.reset_after, float)
assert_type(decision.reset_after_ns, int)
assert_type(limit.peek(b"x"), Decision)
assert_type(limit.allow("x"), bool)
assert_type(limit.hit_many(key for key in ["x", "y"]), list[Decision])
assert_type(limit.clear("x"), Literal["cleared", "set_full", "contended"])
assert_type(limit.reset(), Reset)
assert_type(limit.reset().dead_after_ns, int)

key: Key = ("tenant", b"user", 7)
assert_type(limit.hit(key), Decision)
decisions = limiter.hit_all([("per_ip", "x"), ("per_key", key, 2)])
assert_type(decisions, Decisions)
assert_type(decisions[0], Decision)
assert_type(decisions.deciding, Decision)
assert_type(decisions.allowed, bool)
assert_type(decisions.retry_after, float)
assert_type(decisions.retry_after_ns, int)


@limit.limited(key=lambda number, *_: ("number", number))
def doubled(number: int, text: str = "") -> int:
    return number * 2


@limit.limited(key="all", cost=2)
async def later(number: int) -> str:
    return str(number)


async def awaits() -> None:
    assert_type(await later(1), str)
    await later("1")  # type: ignore[arg-type]


assert_type(doubled(1, text="x"), int)
doubled("1")  # type: ignore[arg-type]
doubled(1, words="x")  # type: ignore[call-arg]
assert_type(RateLimitExceeded(decision).retry_after, float)
assert_type(RateLimitExceeded(decision).decision, Decision)

clock = FakeClock()
assert_type(clock(), int)
with limiters(clock) as make:
    assert_type(make(per_ip="1/s", keys=10), Limiter)
    make(10)  # type: ignore[call-arg]
    make(per_ip=10)  # type: ignore[arg-type]

limit.hit(1)  # type: ignore[arg-type]
limit.hit(("x", 1.5))  # type: ignore[arg-type]
limit.hit_all  # type: ignore[attr-defined]
limit.hit("x", 1.5)  # type: ignore[arg-type]
limit.hit_many([1])  # type: ignore[list-item]
limit.name = "y"  # type: ignore[misc]
decision.allowed = True  # type: ignore[misc]
limiter.nothing()  # type: ignore[attr-defined]
Limiter("shop", per_ip=100)  # type: ignore[arg-type]
Limiter()  # type: ignore[call-arg]
shmlimit.nothing  # type: ignore[attr-defined]


class Other(Limit):  # type: ignore[misc]
    """Limits are final."""
'''


def mypy(module: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_the_stub_agrees_with_the_compiled_module(tmp_path: Path) -> None:
    allowlist = tmp_path / "allowlist"
    allowlist.write_text(ALLOWED)
    done = mypy(
        "mypy.stubtest", "shmlimit._core", "--mypy-config-file", CONFIG, "--allowlist", allowlist
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_strictly_typed_user_is_content(tmp_path: Path) -> None:
    consumer = tmp_path / "consumer.py"
    consumer.write_text(CONSUMER)
    done = mypy("mypy", "--strict", "--config-file", CONFIG, "--cache-dir", tmp_path, consumer)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_type_is_found(tmp_path: Path) -> None:
    """The same with one promise changed: the check above can fail."""
    consumer = tmp_path / "consumer.py"
    consumer.write_text(CONSUMER.replace('limit.allow("x"), bool', 'limit.allow("x"), int'))
    done = mypy("mypy", "--strict", "--config-file", CONFIG, "--cache-dir", tmp_path, consumer)
    assert done.returncode == 1
    assert 'Expression is of type "bool", not "int"' in done.stdout
