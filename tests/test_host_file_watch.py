"""Files that change in every way, with real inotify: each change is told, and the end is right.

No file is read again by itself here, unless a test says so: what is seen was told by an event.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from watchdog.observers.api import BaseObserver

from shmlimit.errors import SourceFailed
from shmlimit.hosts import file_watch
from shmlimit.hosts.file import FileSource
from shmlimit.hosts.link_trail import link_trail

PATIENCE_S = 30.0  # for an event, on a machine that may be busy
A_MOMENT_S = 0.05  # for which a reader lets events come together


class Reader:
    """Reads as HostSource.watch asks of a reader, whenever the source has called."""

    def __init__(self, path: Path) -> None:
        self.source = FileSource(str(path), 86_400.0)
        self.readings = 0
        self._changed = threading.Event()
        self.source.watch(self._changed.set)
        self.count = self.read()

    def read(self) -> int | None:
        """None: there is no count to rely on."""
        self.readings += 1
        try:
            return self.source.read().count
        except SourceFailed:
            return None

    def wait_for(self, count: int | None) -> None:
        never = threading.Event()
        while self.count != count:
            assert self._changed.wait(PATIENCE_S), f"no event; the count is {self.count}"
            never.wait(A_MOMENT_S)
            self._changed.clear()
            self.count = self.read()


@pytest.fixture
def reader_of() -> Iterator[Callable[[Path], Reader]]:
    readers = []

    def made(path: Path) -> Reader:
        readers.append(Reader(path))
        return readers[-1]

    yield made
    for reader in readers:
        reader.source.close()


def replace(path: Path, content: str) -> None:
    """As editors and configuration management do: a new file, renamed over the old one."""
    new = path.with_name(".new")
    new.write_text(content)
    os.replace(new, path)


def config_map(directory: Path, revision: int, content: str) -> None:
    """As the kubelet updates a mounted ConfigMap: only the link ..data is replaced."""
    revisions = directory / f"..revision-{revision}"
    revisions.mkdir(parents=True)
    (revisions / "hosts").write_text(content)
    (directory / "..data_tmp").symlink_to(revisions.name)
    before = os.readlink(directory / "..data") if revision else None
    os.rename(directory / "..data_tmp", directory / "..data")
    if before is None:
        (directory / "hosts").symlink_to("..data/hosts")
    else:
        shutil.rmtree(directory / before)


def test_a_config_map_that_is_swapped(tmp_path: Path, reader_of: Callable[[Path], Reader]) -> None:
    config_map(tmp_path / "map", 0, "2")
    reader = reader_of(tmp_path / "map" / "hosts")
    assert reader.count == 2
    for revision, count in enumerate([3, 4, 5], 1):
        config_map(tmp_path / "map", revision, str(count))
        reader.wait_for(count)


def test_a_directory_on_the_way_that_is_a_swapped_link(
    tmp_path: Path, reader_of: Callable[[Path], Reader]
) -> None:
    for release in (1, 2):
        (tmp_path / f"release-{release}" / "etc").mkdir(parents=True)
        (tmp_path / f"release-{release}" / "etc" / "hosts").write_text(str(release))
    (tmp_path / "current").symlink_to("release-1")
    reader = reader_of(tmp_path / "current" / "etc" / "hosts")
    assert reader.count == 1
    (tmp_path / "next").symlink_to(tmp_path / "release-2")
    os.rename(tmp_path / "next", tmp_path / "current")
    reader.wait_for(2)
    (tmp_path / "release-2" / "etc" / "hosts").write_text("7")  # the new place is watched too
    reader.wait_for(7)


def test_a_file_that_is_replaced_twice(tmp_path: Path, reader_of: Callable[[Path], Reader]) -> None:
    path = tmp_path / "hosts"
    path.write_text("3")
    reader = reader_of(path)
    replace(path, "4")
    replace(path, "5")
    reader.wait_for(5)
    replace(path, "6")
    reader.wait_for(6)


def test_a_file_that_is_written_in_place(
    tmp_path: Path, reader_of: Callable[[Path], Reader]
) -> None:
    path = tmp_path / "hosts"
    path.write_text("3")
    reader = reader_of(path)
    path.write_text("4")
    reader.wait_for(4)
    path.write_bytes(b"\xff\xfe")
    reader.wait_for(None)
    path.write_text("6")
    reader.wait_for(6)


def test_the_file_a_link_leads_to_is_watched_where_it_is(
    tmp_path: Path, reader_of: Callable[[Path], Reader]
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "list").write_text("3")
    (tmp_path / "hosts").symlink_to("real/list")
    reader = reader_of(tmp_path / "hosts")
    replace(tmp_path / "real" / "list", "4")
    reader.wait_for(4)


def test_a_thousand_writes_are_few_readings_and_the_right_end(
    tmp_path: Path, reader_of: Callable[[Path], Reader]
) -> None:
    path = tmp_path / "hosts"
    path.write_text("1")
    reader = reader_of(path)

    def write() -> None:
        pause = threading.Event()
        for number in range(1, 1_001):
            path.write_text(str(number))
            pause.wait(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    reader.wait_for(1_000)
    writer.join()
    assert reader.read() == 1_000
    assert reader.readings < 500


def test_a_file_that_comes_goes_and_comes_again(
    tmp_path: Path, reader_of: Callable[[Path], Reader]
) -> None:
    path = tmp_path / "hosts"
    reader = reader_of(path)
    assert reader.count is None
    path.write_text("3")
    reader.wait_for(3)
    path.unlink()
    reader.wait_for(None)
    path.write_text("4")
    reader.wait_for(4)


def test_a_directory_that_comes_goes_and_comes_again(
    tmp_path: Path, reader_of: Callable[[Path], Reader]
) -> None:
    path = tmp_path / "a" / "b" / "hosts"
    reader = reader_of(path)
    assert reader.count is None
    for count in (3, 4, 5):
        path.parent.mkdir(parents=True)
        path.write_text(str(count))
        reader.wait_for(count)
        shutil.rmtree(tmp_path / "a")
        reader.wait_for(None)


def test_a_directory_that_another_one_took_the_name_of_is_found_by_the_next_reading(
    tmp_path: Path, reader_of: Callable[[Path], Reader]
) -> None:
    path = tmp_path / "conf" / "hosts"
    path.parent.mkdir()
    path.write_text("3")
    reader = reader_of(path)
    path.parent.rename(tmp_path / "conf.old")
    path.parent.mkdir()
    path.write_text("4")
    assert reader.read() == 4, "the slow re-read"
    path.write_text("5")
    reader.wait_for(5)


def test_a_directory_made_anew_between_two_readings_is_found_though_its_inode_number_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader_of: Callable[[Path], Reader]
) -> None:
    monkeypatch.setattr(file_watch, "_inode", lambda directory: (1, 1))  # as file systems may do
    path = tmp_path / "conf" / "hosts"
    path.parent.mkdir()
    path.write_text("3")
    reader = reader_of(path)
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    path.write_text("4")
    reader.wait_for(4)
    path.write_text("5")
    reader.wait_for(5)


def test_an_exception_of_who_is_told_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "hosts"
    path.write_text("3")
    told = threading.Semaphore(0)

    def changed() -> None:
        told.release()
        raise RuntimeError("boom")

    source = FileSource(str(path), 86_400.0)
    source.watch(changed)
    try:
        for count in range(3):
            while told.acquire(blocking=False):
                pass
            path.write_text(str(count + 1))
            assert told.acquire(timeout=PATIENCE_S)
            assert source.read().count == count + 1
    finally:
        source.close()
    assert "boom" in caplog.text


def test_own_readings_and_neighbours_tell_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("3")
    told: list[str] = []
    last = threading.Event()
    source = FileSource(str(path), 86_400.0)
    source.watch(lambda: told.append("told") or last.set())  # type: ignore[func-returns-value]
    try:
        for _ in range(10):
            source.read()
            (tmp_path / "neighbour").write_text("x")
        assert told == []
        replace(path, "4")  # events come in order: none of the ones before is still on its way
        assert last.wait(PATIENCE_S)
        assert len(told) <= 3
    finally:
        source.close()


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (file_watch, "Observer", OSError(errno.EMFILE, "inotify instance limit reached")),
        (file_watch, "Observer", RuntimeError("can't start new thread")),
        (BaseObserver, "schedule", OSError(errno.ENOSPC, "inotify watch limit reached")),
    ],
    ids=["instances", "threads", "watches"],
)
def test_without_inotify_the_re_read_finds_the_change_and_one_warning_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: object,
    name: str,
    error: Exception,
    reader_of: Callable[[Path], Reader],
) -> None:
    def exhausted(*_: Any, **__: Any) -> Any:
        raise error

    path = tmp_path / "hosts"
    path.write_text("3")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, exhausted)
        reader = reader_of(path)
        path.write_text("4")
        assert [reader.read() for _ in range(5)] == [4] * 5
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "raise fs.inotify.max_user_instances" in warnings[0].getMessage()
    assert reader.read() == 4, "and is watched from now on"
    path.write_text("5")
    reader.count = 4
    reader.wait_for(5)


def test_events_that_never_come_leave_the_re_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader_of: Callable[[Path], Reader]
) -> None:
    monkeypatch.setattr(file_watch.FileWatch, "_watch", lambda *_: None)  # as on a network's files
    path = tmp_path / "hosts"
    path.write_text("3")
    reader = reader_of(path)
    path.write_text("4")
    assert reader.read() == 4


def test_a_closed_source_leaves_no_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    source = FileSource(str(tmp_path / "hosts"), 10.0)
    source.watch(lambda: None)
    assert set(threading.enumerate()) - before
    source.close()
    source.close()
    assert set(threading.enumerate()) <= before


# The trail of links.


def test_the_trail_names_every_entry_that_decides(tmp_path: Path) -> None:
    config_map(tmp_path / "map", 0, "2")
    (tmp_path / "etc").symlink_to("map")
    at = str(tmp_path)
    assert link_trail(tmp_path / "etc" / "hosts") == {
        at: {"etc"},
        f"{at}/map": {"hosts", "..data"},
        f"{at}/map/..revision-0": {"hosts"},
    }
    assert link_trail(tmp_path / "none" / "hosts") == {at: {"none"}}
    (tmp_path / "plain").write_text("")
    assert link_trail(tmp_path / "plain" / "hosts") == {at: {"plain"}}
    assert link_trail(tmp_path / "map" / ".." / "plain") == {at: {"plain"}}
    (tmp_path / "absolute").symlink_to(tmp_path / "plain")
    assert link_trail(tmp_path / "absolute") == {at: {"absolute", "plain"}}


def test_links_that_lead_in_a_circle_have_an_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a/x")
    assert link_trail(tmp_path / "a") == {str(tmp_path): {"a", "b"}}
