"""What a limiter says when it is opened: errors name the limit, changes of one are logged."""

from __future__ import annotations

from pathlib import Path

import pytest

import shmlimit
from shmlimit.errors import InvalidRate
from shmlimit.http.wsgi import RateLimitMiddleware


def test_a_wrong_rate_names_its_limit(segment_name: str) -> None:
    with pytest.raises(InvalidRate, match=r"limit 'b'.*1/sek"):
        shmlimit.Limiter(segment_name, a="1/s", b="1/sek")


def test_a_misspelt_option_is_told_from_a_limit(segment_name: str) -> None:
    with pytest.raises(TypeError, match=r"limit 'key'.*the option is keys="):
        shmlimit.Limiter(segment_name, key=1000, a="1/s")  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", ["100/s, burst 500", "100/s; BURST 500", "100/s | burst=500"])
def test_a_burst_set_apart_from_its_rate_is_told_how(rate: str) -> None:
    with pytest.raises(InvalidRate, match=r"without a comma: '100/s burst 500'"):
        shmlimit.Rate.parse(rate)


def test_a_file_that_changes_a_running_limit_is_logged(
    segment_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "shmlimit.toml"
    file.write_text(
        f'[table]\nname = "{segment_name}"\nkeys = 100\n'
        '[limits.a]\nrate = "50/min"\nmode = "off"\n[limits.b]\nrate = "1/s"\n'
    )
    with shmlimit.Limiter(segment_name, keys=100, a="3/min") as running:
        config = shmlimit.Config.load(file)
        other = shmlimit.Limiter.__new__(shmlimit.Limiter)
        other._open(config, None, None, replace="file")  # as another process would by from_config
        other.close()
        (message,) = caplog.messages
        assert "ran at 3/min, enforce, evict when full and runs at 50/min, off" in message
        assert str(file) in message
        assert running["a"].mode == "off"


def test_the_middleware_takes_a_limiter_and_says_so() -> None:
    with pytest.raises(TypeError, match=r"a shmlimit\.Limiter or None, not 'shop'"):
        RateLimitMiddleware(lambda environ, start: [], "shop")  # type: ignore[arg-type]


def test_the_version_is_the_one_of_the_project() -> None:
    assert shmlimit.__version__.count(".") == 2
