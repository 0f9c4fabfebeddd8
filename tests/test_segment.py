"""What bears a segment's name and is not trusted: each refused by its own error, and untouched."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shmlimit
from shmlimit import errors, lock
from shmlimit import limiter as limiters
from shmlimit import segment_name as names
from shmlimit import segment_opening as opening
from shmlimit.errors import ConfigError, SegmentError
from tests.conftest import Clock
from tests.segment_file import COUNTERS, LIMITS, SECTIONS_MAX, SLOTS, SegmentFile

KEYS, WORKERS = 100, 2
REMOVE = "if nothing uses it, remove /dev/shm/"
Damage = Callable[[SegmentFile], None]


@pytest.fixture
def opened(segment_name: str, clock: Clock) -> Callable[..., shmlimit.Limiter]:
    """Opens the limiter of this test's name."""

    def limiter(**options: Any) -> shmlimit.Limiter:
        sized = {"keys": KEYS, "workers": WORKERS, "clock": clock, "a": "1/s", **options}
        return shmlimit.Limiter(segment_name, **sized)

    return limiter


@pytest.fixture
def path(segment_name: str) -> Path:
    return Path(names.DIRECTORY + names.segment_name(segment_name, os.geteuid()))


@pytest.fixture
def leftover(path: Path, opened: Callable[..., shmlimit.Limiter]) -> Path:
    """A sound segment that nobody uses, as a crash leaves it."""
    pid = os.fork()
    if pid == 0:
        opened()
        os._exit(0)  # without closing
    assert os.waitpid(pid, 0)[1] == 0
    assert path.stat().st_size > 0
    return path


def traces(path: Path) -> tuple[object, ...]:
    """All that an attempt to use a file could have changed of it."""
    s = path.lstat()
    content = path.read_bytes() if stat.S_ISREG(s.st_mode) else None
    return s.st_ino, s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns, s.st_ctime_ns, content


def assert_refused(
    path: Path, opened: Callable[..., shmlimit.Limiter], kind: type[SegmentError], *words: str
) -> None:
    """Refused twice alike, with those words, and nothing of it or beside it has changed."""
    assert_attaching_refused(path, lambda _: opened(), kind, *words)
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    opened().close()  # the remedy works


def assert_replaced_when_left(
    path: Path,
    opened: Callable[..., shmlimit.Limiter],
    kind: type[SegmentError],
    *words: str,
) -> None:
    """Attaching is refused, and so is an opening while somebody has it; then it is made anew."""

    def attach(name: str) -> object:
        return opening.attach(name, os.geteuid(), Clock())

    assert_attaching_refused(path, attach, kind, *words)
    inode = path.stat().st_ino
    with lock.opened(str(path)) as user:
        assert lock.try_lock(user, lock.USERS_BYTE, lock.SHARED)
        assert_attaching_refused(path, lambda _: opened(), kind, *words)
    with opened() as limiter:
        assert limiter["a"].hit("x")
        assert path.stat().st_ino != inode
    assert not path.exists()


def assert_attaching_refused(
    path: Path, attach: Callable[[str], object], kind: type[SegmentError], *words: str
) -> None:
    name = path.name.split(".", 2)[2]
    before = traces(path)
    for _ in range(2):
        with pytest.raises(SegmentError) as refusal:
            attach(name)
        assert type(refusal.value) is kind
        for word in (path.name, *words):
            assert word in str(refusal.value)
    assert traces(path) == before
    assert [beside.name for beside in path.parent.glob(f"{path.name}*")] == [path.name]


# The file.


def test_a_sound_leftover_is_attached(
    leftover: Path, opened: Callable[..., shmlimit.Limiter]
) -> None:
    inode = leftover.stat().st_ino
    with opened() as limiter:
        assert limiter.path.stat().st_ino == inode
        assert limiter["a"].hit("x")
    assert not leftover.exists()


def test_another_owner(leftover: Path, opened: Callable[..., shmlimit.Limiter]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(leftover, 12345, -1)
    words = ("belongs to uid 12345, not to uid 0", "run as that user, or have its owner remove it")
    assert_refused(leftover, opened, errors.ForeignOwner, *words)


@pytest.mark.parametrize("mode", [0o660, 0o640, 0o620, 0o610, 0o606, 0o604, 0o602, 0o601, 0o777])
def test_access_for_others(
    leftover: Path, opened: Callable[..., shmlimit.Limiter], mode: int
) -> None:
    leftover.chmod(mode)
    words = (f"has mode {mode:04o}", "accepted is 0600", "remove /dev/shm/")
    assert_refused(leftover, opened, errors.UnsafePermissions, *words)


@pytest.mark.parametrize("kind", ["link", "dangling link", "directory", "FIFO"])
def test_no_regular_file(
    path: Path, opened: Callable[..., shmlimit.Limiter], kind: str, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    if kind == "directory":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path, 0o600)
    else:
        path.symlink_to(target)
    if kind == "link":
        target.write_bytes(bytes(100))
        target.chmod(0o600)
    before = traces(target) if kind == "link" else None
    assert_refused(path, opened, errors.NotRegularFile, "is not a regular file; remove it and")
    assert target.exists() is (kind == "link")
    assert kind != "link" or traces(target) == before


@pytest.mark.parametrize("size", [0, 1, 103, 4095])
def test_shorter_than_a_header(
    path: Path, opened: Callable[..., shmlimit.Limiter], size: int
) -> None:
    path.write_bytes(bytes(size))
    path.chmod(0o600)
    assert_replaced_when_left(path, opened, errors.WrongSize, REMOVE)


@pytest.mark.parametrize("by", [-4096, -1, 1, 4096])
def test_truncated_or_grown(
    leftover: Path, opened: Callable[..., shmlimit.Limiter], by: int
) -> None:
    size = leftover.stat().st_size
    os.truncate(leftover, size + by)
    words = (f"has {size + by} bytes, its header states {size}", "remove /dev/shm/")
    assert_replaced_when_left(leftover, opened, errors.WrongSize, *words)


# The header.


def set_header(field: str, value: int | bytes) -> Damage:
    return lambda file: file.set_header(field, value)


def set_section(which: int, field: int, by: int) -> Damage:
    """Changes one field of a section's entry: 0 kind, 1 item bytes, 2 offset, 3 items."""

    def damage(file: SegmentFile) -> None:
        entry = list(file.section(which))
        entry[field] += by
        file.set_section(which, *entry)

    return damage


def more_lines(file: SegmentFile) -> None:
    """Lines and directory agree with each other, not with the file's size."""
    kind, item_bytes, offset, items = file.section(SLOTS)
    file.set_header("lines", items + 1)
    file.set_section(SLOTS, kind, item_bytes, offset, items + 1)


GEOMETRY = ("has a directory that does not fit its size", REMOVE)
HEADERS: dict[str, tuple[Damage, type[SegmentError], tuple[str, ...]]] = {
    "magic": (
        set_header("magic", 0x54494D494C4D4854), errors.WrongMagic,
        ("was not made by shmlimit", REMOVE),
    ),
    "no magic": (set_header("magic", 0), errors.WrongMagic, (REMOVE,)),
    "newer layout": (
        set_header("layout_version", 4), errors.WrongLayout,
        ("has layout version 4, this shmlimit reads 3", "stop the older servers first", REMOVE),
    ),
    "older layout": (set_header("layout_version", 0), errors.WrongLayout, (REMOVE,)),
    "stated size": (set_header("segment_bytes", 4096), errors.WrongSize, (REMOVE,)),
    "header size": (set_header("header_bytes", 8192), errors.WrongGeometry, GEOMETRY),
    "no lines": (set_header("lines", 0), errors.WrongGeometry, GEOMETRY),
    "huge lines": (set_header("lines", 2**64 - 1), errors.WrongGeometry, GEOMETRY),
    "more lines": (more_lines, errors.WrongGeometry, GEOMETRY),
    "no workers": (set_header("worker_rows", 0), errors.WrongGeometry, GEOMETRY),
    "more workers": (set_header("worker_rows", WORKERS + 1), errors.WrongGeometry, GEOMETRY),
    "boot": (
        set_header("boot_id", bytes(16)), errors.ForeignBoot,
        ("was made before the last boot", REMOVE),
    ),
    "clock": (
        set_header("clock_id", 7), errors.ForeignClock,
        ("runs on clock 7, not on CLOCK_MONOTONIC (1)", REMOVE),
    ),
    "time namespace": (
        set_header("time_ns_inode", 99), errors.ForeignTimeNamespace,
        ("was made in time namespace 99", "share the namespace, or use another segment name"),
    ),
    **{
        f"section {which}, field {field} {by:+}": (
            set_section(which, field, by), errors.WrongGeometry, GEOMETRY
        )
        for which in (LIMITS, COUNTERS, SLOTS) for field in range(4) for by in (1, -1)
    },
    **{
        f"an unknown section {which}": (
            set_section(which, 0, 9), errors.WrongGeometry, GEOMETRY
        )
        for which in (SLOTS + 1, SECTIONS_MAX - 1)
    },
}  # fmt: skip


@pytest.mark.parametrize("case", HEADERS)
def test_a_header_that_cannot_be_trusted(
    leftover: Path, opened: Callable[..., shmlimit.Limiter], case: str
) -> None:
    damage, kind, words = HEADERS[case]
    with SegmentFile.of(leftover) as file:
        damage(file)
    replaced = kind in opening.OF_NO_USE
    (assert_replaced_when_left if replaced else assert_refused)(leftover, opened, kind, *words)


def test_any_other_file_is_refused(path: Path, opened: Callable[..., shmlimit.Limiter]) -> None:
    path.write_bytes(os.urandom(100_000))
    path.chmod(0o600)
    assert_refused(path, opened, errors.WrongMagic, "was not made by shmlimit")


# What is asked for.


@pytest.mark.parametrize("keys", [KEYS * 2, 1])
def test_another_geometry_than_the_running_one(
    opened: Callable[..., shmlimit.Limiter], keys: int
) -> None:
    with opened() as running:
        running["a"].hit("x")
        before = traces(running.path)
        with pytest.raises(errors.WrongKeys) as refusal:
            opened(keys=keys)
        assert f"made for {KEYS} keys, not for {keys}" in str(refusal.value)
        assert "close it in whatever uses it" in str(refusal.value)
        assert traces(running.path) == before
        assert running["a"].peek("x", 0).remaining == 0
    assert not running.path.exists()


@pytest.mark.parametrize("workers", [WORKERS - 1, WORKERS + 1])
def test_a_running_segment_is_attached_whatever_number_of_workers_is_asked_for(
    opened: Callable[..., shmlimit.Limiter], workers: int
) -> None:
    with opened() as running, opened(workers=workers) as attached:
        assert running["a"].hit("x")
        assert attached["a"].peek("x", 0).remaining == 0


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "/a", "..", ".", "a\0b", "\0", "a b", "a\n", "caf\u00e9", "x" * 201, "\ud800",
     None, 5, b"shop", ["shop"]],
    ids=lambda name: ascii(name)[:20],
)  # fmt: skip
def test_names_that_are_refused(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(limiters, "create_or_attach")  # nothing is looked for under such a name
    with pytest.raises(ConfigError, match=r"1 to 200 letters, digits, '_', '-' or '\.'"):
        shmlimit.Limiter(name, a="1/s")
    if name not in (".", ".."):  # a file may well bear these after the prefix
        with pytest.raises(ConfigError, match="accepted are 1 to 200 letters"):
            names.segment_name(name, 0)


def test_the_longest_name(segment_name: str) -> None:
    longest = segment_name + "x" * (names.KEPT_CHARACTERS - len(segment_name))
    with shmlimit.Limiter(longest, keys=KEYS, workers=1, owner=os.geteuid(), a="1/s") as limiter:
        assert limiter.path.name == f"shmlimit.{os.geteuid()}.{longest}"
        assert limiter["a"].hit("x")
    assert not limiter.path.exists()


@pytest.mark.parametrize("owner", [0, 1000, 2**32 - 2])
def test_longer_names_are_shortened_stably_and_apart(owner: int) -> None:
    prefix = "payments-api-production-eu-west-1-" * 6
    shortened = {names.segment_name(f"{prefix[:197]}{i:03}", owner) for i in range(1000)}
    assert len(shortened) == 1000, "distinct, though their beginnings are the same"
    assert all(len(name) <= 30 for name in shortened)
    assert names.segment_name("x" * 200, 1000) == "/shmlimit.1000.xxxxxx~aa20c23e"
    one = names.segment_name("x" * 200, owner)
    assert names.segment_name(one.partition(f".{owner}.")[2], owner) == one


def test_two_names_with_one_short_name_do_not_share_a_table(
    segment_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "DIGEST_CHARACTERS", 0)
    monkeypatch.setattr(names, "SHORT_CHARACTERS", len(f"/shmlimit.{os.geteuid()}.{segment_name}~"))
    first, second = (segment_name + "x" * 70 + end for end in "ab")
    with shmlimit.Limiter(first, keys=KEYS, a="1/s") as limiter:
        assert limiter.path.name == f"shmlimit.{os.geteuid()}.{segment_name}~"
        with pytest.raises(errors.WrongName, match="choose another name"):
            shmlimit.Limiter(second, keys=KEYS, a="1/s")


def test_a_segment_whose_clock_begins_later_than_ours_is_not_used(
    leftover: Path, opened: Callable[..., shmlimit.Limiter], clock: Clock
) -> None:
    with SegmentFile.of(leftover) as file:
        file.set_header("epoch_ns", clock.ns + 5_000_000_000)
    words = ("begins 5 s from now", "it runs on another one")
    assert_replaced_when_left(leftover, opened, errors.ForeignClock, *words)


def test_a_renamed_segment_is_refused(
    leftover: Path, opened: Callable[..., shmlimit.Limiter]
) -> None:
    with SegmentFile.of(leftover) as file:
        file.set_header("name", b"another")
    words = ("was made as 'another', not as 'test-", "its file was renamed")
    assert_refused(leftover, opened, errors.WrongName, *words)


def test_attaching_to_nothing(segment_name: str, path: Path) -> None:
    with pytest.raises(errors.SegmentNotFound, match="is the server running"):
        opening.attach(segment_name, os.geteuid(), None)
    assert not path.exists()
