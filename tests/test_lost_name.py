"""A segment whose name somebody removes while it is in use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shmlimit import Limiter
from shmlimit.segment_listing import listed
from tests.processes import forked


@pytest.fixture
def file(tmp_path: Path, segment_name: str) -> Path:
    path = tmp_path / "shmlimit.toml"
    path.write_text(
        f'[table]\nname = "{segment_name}"\nkeys = "1k"\n[limits.a]\nrate = "100/h"\nkey = "ip"\n'
    )
    return path


def hits(limiter: Limiter, times: int) -> None:
    assert all(limiter["a"].allow("x") for _ in range(times))


def test_those_who_have_it_and_those_they_fork_go_on_with_one_count(file: Path) -> None:
    with Limiter.from_config(file) as limiter, forked(lambda: hits(limiter, 1)):
        limiter.path.unlink()
        with forked(lambda: hits(limiter, 2)), forked(lambda: hits(Limiter.from_config(file), 4)):
            hits(limiter, 8)
            assert limiter["a"].peek("x", 0).remaining == 100 - 1 - 2 - 4 - 8
            limiter.check()
            assert not limiter.path.exists(), "no second table was made"


def test_a_monitor_shows_it_and_who_has_it(file: Path, segment_name: str) -> None:
    with Limiter.from_config(file) as limiter:
        limiter.path.unlink()
        (found,) = [each for each in listed(os.geteuid()) if each.name == segment_name]
        assert found.state.startswith(f"in use by {os.getpid()}, under no name")


def test_a_reload_counts_for_all_who_have_it_and_tells_what_is_wrong(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Limiter.from_config(file) as limiter:
        limiter.path.unlink()
        file.write_text(file.read_text().replace("100/h", "50/h"))
        limiter.reload()
        assert limiter["a"].peek("x", 0).remaining == 50
    told = [message for message in caplog.messages if "has lost its name" in message]
    assert len(told) == 1
    assert "restart the server" in told[0]


def test_its_end_leaves_the_segment_that_has_the_name_by_then(
    file: Path, segment_name: str
) -> None:
    first = Limiter.from_config(file)
    first.path.unlink()
    with Limiter(segment_name, keys=1000, a="100/h") as second:
        hits(second, 1)
        assert first["a"].peek("x", 0).remaining == 100, "they are two"
        first.close()
        assert second.path.exists()
