"""What shmlimit offers to the tests of its users: a clock, a factory, and the pytest fixtures."""

from __future__ import annotations

import asyncio
import importlib
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from shmlimit import Limiter
from shmlimit.testing import FakeClock, limiters

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[1]
Run = Callable[[str], pytest.RunResult]


# The clock.


def test_the_clock_stands_still_until_it_is_advanced() -> None:
    clock = FakeClock()
    start_ns = clock()
    assert clock() == start_ns
    clock.advance(0.25)
    clock.advance(3)
    clock.advance_ns(7)
    clock.advance(0)
    assert clock() - start_ns == 3_250_000_007
    assert repr(clock) == f"<FakeClock at {clock()} ns>"


@pytest.mark.parametrize("seconds", [-1, -1e-12, float("nan"), float("inf"), -float("inf")])
def test_it_is_not_advanced_backwards_or_nowhere(seconds: float) -> None:
    clock = FakeClock()
    before_ns = clock()
    with pytest.raises(ValueError, match="seconds >= 0, not"):
        clock.advance(seconds)
    with pytest.raises(ValueError, match="nanoseconds >= 0, not -1"):
        clock.advance_ns(-1)
    with pytest.raises(TypeError, match=r"an int, not 1\.5: for seconds use advance"):
        clock.advance_ns(1.5)  # type: ignore[arg-type]
    assert clock() == before_ns


@pytest.mark.parametrize("rate", ["3/s", "7/m", "1000/h", "1/d", "997/100s"])
def test_a_refused_request_passes_after_retry_after(rate: str) -> None:
    clock = FakeClock()
    with limiters(clock) as make:
        limit = make(a=rate)["a"]
        for _ in range(limit.rates[0].burst):
            assert limit.allow("x")
        for _ in range(20):
            refused = limit.hit("x")
            assert not refused
            clock.advance(refused.retry_after)
            assert limit.allow("x")


def test_who_waits_on_it_moves_it_and_is_not_early() -> None:
    clock = FakeClock()
    with limiters(clock) as make:
        limit = make(a="7/m burst 1")["a"]
        start_ns = clock()
        for _ in range(8):
            assert limit.acquire("x").allowed
        assert clock() - start_ns >= 60_000_000_000
        assert asyncio.run(limit.acquire_async("x")).wait_ns > 0
        assert (clock() - start_ns) // 1_000_000_000 == 68
        assert not limit.acquire("x", timeout=8)


# The factory.


def test_limiters_are_apart_and_are_gone_afterwards() -> None:
    with limiters(FakeClock()) as make:
        first, second = make(a="1/h"), make(a="1/h", keys=5, workers=1)
        assert [first["a"].allow("x"), second["a"].allow("x")] == [True, True]
        first.close()
        assert not first.path.exists()
    assert not second.path.exists()


def test_a_limiter_that_another_user_still_has_is_gone_all_the_same() -> None:
    clock = FakeClock()
    with limiters(clock) as make:
        limiter = make(a="1/h")
        other = Limiter(limiter.name, keys=1000, clock=clock)
    try:
        assert not limiter.path.exists()
    finally:
        other.close()


# The plugin.


def entry_point() -> tuple[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    ((name, module),) = project["entry-points"]["pytest11"].items()
    return name, module


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    name, module = entry_point()
    assert name == module, "so that -p finds the same plugin, installed or not"
    assert hasattr(importlib.import_module(module), "shmlimit_limiter")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert settings["py-modules"] == [module]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a test file in a process of its own, which has nothing imported yet."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run_test(test: str) -> pytest.RunResult:
        pytester.makepyfile(test)
        return pytester.runpytest_subprocess("-p", entry_point()[0], "-p", "no:cacheprovider")

    return run_test


def test_the_fixtures_give_limiters_on_a_fake_clock_and_remove_them(
    run: Run, tmp_path: Path
) -> None:
    names = tmp_path / "names"
    result = run(
        f"""
        import pytest

        def test_refused_until_the_clock_moves(shmlimit_limiter, shmlimit_clock):
            limiter = shmlimit_limiter(per_ip="1/m", other="5/s")
            open({str(names)!r}, "a").write(f"{{limiter.path}}\\n")
            assert limiter.path.exists()
            limit = limiter["per_ip"]
            assert limit.hit("x")
            refused = limit.hit("x")
            assert not refused
            shmlimit_clock.advance(refused.retry_after)
            assert limit.hit("x")

        def test_that_fails(shmlimit_limiter):
            limiter = shmlimit_limiter(per_ip="1/m")
            open({str(names)!r}, "a").write(f"{{limiter.path}}\\n")
            assert limiter["per_ip"].hit("x")
            assert not limiter["per_ip"].hit("y"), "each key has its bucket"
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    paths = [Path(line) for line in names.read_text().splitlines()]
    assert len(set(paths)) == 2
    assert [path for path in paths if path.exists()] == []


def test_a_run_that_uses_no_fixture_of_it_does_not_import_shmlimit(run: Run) -> None:
    result = run(
        """
        import sys

        def test_nothing_heavy(pytestconfig):
            assert pytestconfig.pluginmanager.has_plugin("pytest_shmlimit")
            assert [name for name in sys.modules if name.startswith("shmlimit")] == []

        def test_the_fixture_imports_it(shmlimit_clock):
            assert "shmlimit.testing" in sys.modules
        """,
    )
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize("rate", ["1/year", "7/year burst 3", "1/month", "3/week burst 5"])
def test_after_the_times_of_slow_rates_a_request_passes(
    shmlimit_limiter: Callable[..., Limiter], shmlimit_clock: FakeClock, rate: str
) -> None:
    """A float of seconds cannot tell months to the nanosecond."""
    limit = shmlimit_limiter(a=rate)["a"]
    for step in range(7):  # years: the table's clock goes to nine
        shmlimit_clock.advance_ns(step * 123_456_789_123)
        refused = limit.hit("x")
        while refused:
            refused = limit.hit("x")
        shmlimit_clock.advance(refused.retry_after)
        assert limit.hit("x")
