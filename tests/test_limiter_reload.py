"""shmlimit.toml read again by an open limiter: what changes, what stays, what is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmlimit import ConfigError, Limiter, SegmentError, TooManyLimits
from shmlimit.lock import EXCLUSIVE, PUBLISHER_BYTE, opened, try_lock
from tests.conftest import Clock

NS_PER_MS = 1_000_000
FAST, SLOW = "100/s burst 500", "25/s burst 500"


class File:
    """A shmlimit.toml for one segment."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name

    def write(self, table: str = "keys = 100", **limits: str) -> None:
        """Each limit's lines by its name."""
        text = f"[table]\n{table}\n"
        if "name" not in table:
            text += f'name = "{self.name}"\n'
        for name, lines in limits.items():
            text += f"[limits.{name}]\n{lines}\n"
        self.path.write_text(text)


@pytest.fixture
def file(segment_name: str, tmp_path: Path) -> File:
    found = File(tmp_path / "shmlimit.toml", segment_name)
    found.write(a=f'rate = "{FAST}"\nkey = "ip"')
    return found


@pytest.fixture
def limiter(file: File, clock: Clock) -> Iterator[Limiter]:
    with Limiter.from_config(file.path, clock=clock) as opened_here:
        yield opened_here


def taken_at_once(limiter: Limiter) -> int:
    """How many cells the key gets before it is refused."""
    cells = 0
    while limiter["a"].hit("k"):
        cells += 1
    return cells


def test_a_debt_is_kept_as_time(file: File, limiter: Limiter, clock: Clock) -> None:
    """500 cells at 100/s are owed for 5 s, which at 25/s are worth 125 cells of the 500."""
    assert taken_at_once(limiter) == 500
    file.write(a=f'rate = "{SLOW}"')
    with pytest.raises(ConfigError):  # no key: not published
        limiter.reload()
    assert taken_at_once(limiter) == 0
    file.write(a=f'rate = "{SLOW}"\nkey = "ip"')
    limiter.reload()
    assert taken_at_once(limiter) == 375
    file.write(a=f'rate = "{FAST}"\nkey = "ip"')
    limiter.reload()
    refusal = limiter["a"].peek("k")
    assert refusal.retry_after_ns == 15_010 * NS_PER_MS  # 20 s are owed, 5 s may be, less a cell
    clock.ns += refusal.retry_after_ns
    assert taken_at_once(limiter) == 1


def test_a_rate_that_alternates_mints_no_more_than_the_first_change(
    file: File, limiter: Limiter, clock: Clock
) -> None:
    taken = taken_at_once(limiter)
    for change in range(100):
        file.write(a=f'rate = "{FAST if change % 2 else SLOW}"\nkey = "ip"')
        limiter.reload()
        taken += taken_at_once(limiter)
        clock.ns += 10 * NS_PER_MS
    # one second at the faster rate, and the transient of the change
    assert taken <= 500 + 375 + 100


def test_bursts_in_proportion_to_the_rates_mint_nothing(file: File, limiter: Limiter) -> None:
    taken_at_once(limiter)
    file.write(a='rate = "25/s burst 125"\nkey = "ip"')
    limiter.reload()
    assert taken_at_once(limiter) == 0


def test_mode_and_when_full_change_for_everybody(
    file: File, limiter: Limiter, clock: Clock
) -> None:
    other = Limiter(file.name, keys=100, clock=clock)  # as another process would attach
    try:
        file.write(a=f'rate = "{FAST}"\nkey = "ip"\nmode = "off"\nwhen_full = "deny"')
        limiter.reload()
        assert (other["a"].mode, other["a"].when_full) == ("off", "deny")
    finally:
        other.close()


def test_a_new_limit_is_made_and_one_that_is_named_no_more_is_removed(
    file: File, limiter: Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    removed = limiter["a"]
    assert removed.hit("k")
    file.write(b='rate = "1/h"\nkey = "header:X-Api-Key"')
    limiter.reload()
    assert [limit.name for limit in limiter.config.limits] == ["b"]
    assert (list(limiter), "a" in limiter, len(limiter)) == (["b"], False, 1)
    assert limiter["b"].key == "header:X-Api-Key"
    assert removed.removed
    assert limiter.counters()["a"]["allowed"] == 1, "counts stay"
    (message,) = caplog.messages
    assert f"limit a of segment {limiter.path} was removed, in all processes" in message


def test_what_a_reload_changed_is_logged_with_both_numbers(
    file: File, limiter: Limiter, caplog: pytest.LogCaptureFixture
) -> None:
    limiter.reload()
    assert caplog.messages == []
    file.write(a=f'rate = "{SLOW}"\nkey = "ip"')
    limiter.reload()
    (message,) = caplog.messages
    assert f"ran at {FAST}, enforce" in message
    assert f"runs at {SLOW}, enforce" in message
    assert "debts are kept as time: who owes all of the old burst may take 375 at once" in message


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('name = "other"\nkeys = 100', "table.name is 'other' now and 'test-"),
        ("keys = 200", "table.keys is 200 now and 100 in the running segment"),
        ("keys = 100\nworkers = 65", "table.workers is 65 now and 64 in the running segment"),
    ],
)
def test_what_needs_a_restart_is_logged_and_the_limits_change(
    file: File, limiter: Limiter, caplog: pytest.LogCaptureFixture, table: str, told: str
) -> None:
    before = limiter.config.table
    file.write(table, a=f'rate = "{SLOW}"\nkey = "ip"')
    limiter.reload()
    (message,) = [message for message in caplog.messages if "it needs a restart" in message]
    assert told in message
    assert "stop the server and start it again" in message
    assert str(limiter["a"].rates[0]) == SLOW
    assert limiter.config.table == before
    assert Limiter.from_config(file.path) is limiter


@pytest.mark.parametrize(
    "content",
    ["broken", '[table]\nname = "x"\n', b"\xff\xfe", '[table]\nname="x"\n[limits.a]\nrate="0/s"'],
)
def test_a_file_that_is_not_accepted_changes_nothing(
    file: File, limiter: Limiter, content: str | bytes
) -> None:
    before = limiter.config
    file.path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match=str(file.path)):
        limiter.reload()
    file.path.unlink()
    with pytest.raises(ConfigError, match="there is no such file"):
        limiter.reload()
    assert limiter.config is before
    assert str(limiter["a"].rates[0]) == FAST


def test_limits_beyond_the_tables_rows_are_refused_before_any_is_published(
    file: File, limiter: Limiter
) -> None:
    lines = 'rate = "1/s"\nkey = "ip"'
    file.write(**{f"b{number}": lines for number in range(255)})
    limiter.reload()
    assert len(limiter) == 255, "and the row of the one that was removed"
    file.write(b0=f'rate = "{SLOW}"\nkey = "ip"', c=lines)
    with pytest.raises(TooManyLimits, match=r"1 rates too many .* room for 256"):
        limiter.reload()
    assert str(limiter["b0"].rates[0]) == "1/s"


def test_a_publisher_that_was_stopped_fails_the_reload_in_bounded_time(
    file: File, limiter: Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmlimit.segment.PUBLISHER_WAIT_S", 0.01)
    before = limiter.config
    with opened(str(limiter.path)) as descriptor:
        assert try_lock(descriptor, PUBLISHER_BYTE, EXCLUSIVE)
        with pytest.raises(SegmentError, match="continue or end it"):
            limiter.reload()
    assert limiter.config is before
    limiter.reload()


def test_a_limiter_made_in_code_reloads_from_a_path_alone(segment_name: str, file: File) -> None:
    with Limiter(segment_name, keys=100, a="1/s") as limiter:
        with pytest.raises(ConfigError, match="give reload a file's path"):
            limiter.reload()
        limiter.reload(file.path)
        assert str(limiter["a"].rates[0]) == FAST
        assert limiter.config.path == file.path


def test_reloads_keep_no_files_open(file: File, limiter: Limiter) -> None:
    limiter.reload()
    before = os.listdir("/proc/self/fd")
    for _ in range(20):
        limiter.reload()
    assert os.listdir("/proc/self/fd") == before


def test_a_segment_that_has_lost_its_name_reloads_all_the_same(
    file: File, limiter: Limiter
) -> None:
    limiter.path.unlink()
    file.write(a=f'rate = "{SLOW}"\nkey = "ip"')
    limiter.reload()
    assert str(limiter["a"].rates[0]) == SLOW
    assert not limiter.path.exists()


def in_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the test runs as if in a process forked here."""
    pid = os.getpid()
    monkeypatch.setattr("os.getpid", lambda: pid + 1)


def test_a_worker_needs_neither_its_file_nor_its_directory(
    file: File, limiter: Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = file.path.with_name("elsewhere")
    elsewhere.mkdir()
    monkeypatch.delenv("SHMLIMIT_CONFIG", raising=False)
    monkeypatch.chdir(elsewhere)
    file.path.unlink()
    with pytest.raises(ConfigError, match="there is no such file"):
        Limiter.from_config()  # this process has opened it from elsewhere itself
    in_child(monkeypatch)
    assert limiter.inherited
    assert Limiter.from_config() is limiter
    assert Limiter.from_config(file.path) is limiter


def test_a_limiter_opened_by_name_in_a_worker_is_the_masters_table_too(
    file: File, limiter: Limiter, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    in_child(monkeypatch)
    with Limiter(file.name, keys=100, clock=clock) as by_name:
        assert by_name.inherited
    with Limiter(file.name + "-own", keys=100) as own:
        assert not own.inherited
