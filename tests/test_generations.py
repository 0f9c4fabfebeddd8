"""A new segment in the place of one that runs: of another size, or of another layout."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmlimit import Limiter
from shmlimit import segment_opening as opening
from shmlimit.errors import SegmentInUse, WrongKeys, WrongLayout
from shmlimit.lock import SHARED, USERS_BYTE, lock_within, try_lock
from shmlimit.segment import Segment
from shmlimit.segment_creation import Role, SegmentSpec, create
from shmlimit.segment_listing import listed
from tests.processes import forked
from tests.segment_file import SegmentFile
from tests.test_mastership import another


def written(path: Path, name: str, keys: str, *lines: str) -> Path:
    table = "\n".join(["[table]", f'name = "{name}"', f'keys = "{keys}"', *lines])
    path.write_text(f'{table}\n[limits.per_ip]\nrate = "10/h"\nkey = "ip"\n')
    return path


@pytest.fixture
def small(tmp_path: Path, segment_name: str) -> Path:
    return written(tmp_path / "small.toml", segment_name, "1k")


@pytest.fixture
def large(tmp_path: Path, segment_name: str) -> Path:
    return written(tmp_path / "large.toml", segment_name, "2k")


@pytest.fixture
def old(small: Path) -> Iterator[Limiter]:
    limiter = another(small, "master")
    limiter["per_ip"].hit("x")
    yield limiter
    limiter.close()


def remaining(limiter: Limiter) -> int:
    return limiter["per_ip"].peek("x", 0).remaining


def test_an_upgrade_to_another_size_leaves_the_old_one_to_those_who_have_it(
    old: Limiter, large: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = another(large, "upgrade")
    assert new.size_bytes > old.size_bytes
    assert (remaining(old), remaining(new)) == (9, 10)
    (message,) = caplog.messages
    assert "keep it until they end" in message
    assert message.endswith("made for 1000 keys, not for 2000")
    old["per_ip"].hit("x")
    old.check()
    old.close()
    assert new.path.stat().st_size == new.size_bytes, "the old one's end leaves the new one's name"
    joined = another(large, "user")
    joined["per_ip"].hit("x")
    assert remaining(new) == 9
    joined.close()
    new.close()
    assert not new.path.exists()


def test_an_upgrade_of_the_same_size_goes_on_with_the_same_table(old: Limiter, small: Path) -> None:
    new = another(small, "upgrade")
    assert remaining(new) == 9
    new.close()


def test_an_older_layout_that_runs_is_left_to_its_users(old: Limiter, small: Path) -> None:
    with SegmentFile.of(old.path) as file:
        file.set_header("layout_version", 1)
    with pytest.raises(WrongLayout, match="stop the older servers first"):
        another(small, "user")
    with pytest.raises(SegmentInUse):
        another(small, "master")
    inode = old.path.stat().st_ino
    new = another(small, "upgrade")
    assert new.path.stat().st_ino != inode
    assert (remaining(old), remaining(new)) == (9, 10)
    old.close()
    new.close()
    assert not new.path.exists()


def test_only_a_master_that_is_alone_or_takes_over_replaces(
    old: Limiter, large: Path, tmp_path: Path
) -> None:
    with pytest.raises(WrongKeys):
        another(large, "user")
    with pytest.raises(WrongKeys):
        Limiter(old.name, keys=2000, per_ip="10/h")
    with pytest.raises(SegmentInUse):
        another(large, "master")
    shared = written(tmp_path / "shared.toml", old.name, "2k", "shared = true")
    with pytest.raises(WrongKeys):
        another(shared, "master")
    assert remaining(old) == 9


def test_a_master_replaces_the_table_of_workers_that_outlived_theirs(
    small: Path, large: Path
) -> None:
    with forked(lambda: another(small, "user")):
        new = another(large, "master")
        assert remaining(new) == 10
        new.close()
        assert not new.path.exists()


def test_what_runs_under_no_name_is_listed(old: Limiter, large: Path) -> None:
    new = another(large, "upgrade")
    found = [each for each in listed(os.geteuid()) if each.name == old.name]
    assert [each.named for each in found].count(True) == 1
    (nameless,) = [each for each in found if not each.named]
    assert nameless.state.startswith(f"in use by {os.getpid()}, under no name")
    assert 0 <= nameless.size_bytes - old.size_bytes < mmap.PAGESIZE
    new.close()


@pytest.mark.parametrize("role", ["upgrade", "master"])
def test_of_two_that_replace_at_once_one_does(
    role: Role, small: Path, large: Path, segment_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds, when it has the old one's lock, that the name is another's by now."""
    spec = SegmentSpec(segment_name, os.geteuid(), 2000, 64, None, role)
    made: list[Segment | SegmentInUse] = []
    at_the_lock = threading.Event()

    def create_slowly(spec: SegmentSpec, *, replace: bool = False) -> Segment:
        monkeypatch.setattr(opening, "create", create)
        rival.start()
        assert at_the_lock.wait(30)
        return create(spec, replace=replace)

    def lock_late(descriptor: int, byte: int, kind: int, wait_s: float) -> bool:
        if threading.current_thread() is rival:
            assert not try_lock(descriptor, byte, kind), "the first has it"
            at_the_lock.set()
        return lock_within(descriptor, byte, kind, wait_s)

    def rivals() -> None:
        try:
            made.append(opening.create_or_attach(spec))
        except SegmentInUse as refusal:
            made.append(refusal)
            at_the_lock.set()

    rival = threading.Thread(target=rivals)
    with forked(lambda: another(small, "user")):
        monkeypatch.setattr(opening, "create", create_slowly)
        monkeypatch.setattr(opening, "lock_within", lock_late)
        first = opening.create_or_attach(spec)
        rival.join()
        (second,) = made
        if role == "upgrade":
            assert isinstance(second, Segment)
            assert os.fstat(second._descriptor).st_ino == os.stat(first.path).st_ino
            second.close()
        else:
            assert isinstance(second, SegmentInUse)
        first.close()
    assert not Path(first.path).exists()


def test_a_segment_whose_last_user_goes_while_it_is_replaced_is_made_anew(
    small: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = another(small, "user")
    real = try_lock

    def goes_first(descriptor: int, byte: int, kind: int) -> bool:
        if (byte, kind) == (USERS_BYTE, SHARED):
            monkeypatch.setattr(opening, "try_lock", real)
            old.close()
        return real(descriptor, byte, kind)

    monkeypatch.setattr(opening, "try_lock", goes_first)
    new = another(large, "upgrade")
    assert new.path.stat().st_size == new.size_bytes
    new.close()
    assert not new.path.exists()
