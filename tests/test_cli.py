"""The command line: what it tells of segments in use and left behind, and what it removes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import shmlimit
from shmlimit import cli, segment_removal, segment_usage
from shmlimit import segment_name as names
from shmlimit.lock import EXCLUSIVE, SHARED, USERS_BYTE, held, opened, try_lock
from shmlimit.segment_name import DIRECTORY
from shmlimit.segment_view import viewed
from tests.segment_file import SegmentFile

BURST = 100
SLOW = f"1/h burst {BURST}"  # gives no cell back while a test runs
NOBODY = 65534  # uid


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    def row(self, name: str) -> str:
        """The one line of a list about that name."""
        (line,) = [line for line in self.out.splitlines() if line.split()[0] == name]
        return line


Run = Callable[..., Answer]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Answer:
        capfd.readouterr()
        try:
            code = cli.main(arguments)
        except SystemExit as ended:  # argparse's
            code = int(ended.code or 0)
        return Answer(code, *capfd.readouterr())

    return call


@pytest.fixture
def path(segment_name: str) -> Path:
    return Path(DIRECTORY + names.segment_name(segment_name, os.geteuid()))


@pytest.fixture
def limiter(segment_name: str) -> Iterator[shmlimit.Limiter]:
    with shmlimit.Limiter(segment_name, keys=100, workers=4, a=SLOW, b="5/10m") as made:
        yield made


@pytest.fixture
def left(segment_name: str, path: Path) -> int:
    """A segment whose only user decided three times and was killed; the pid it had."""

    def work() -> bool:
        made = shmlimit.Limiter(segment_name, keys=100, workers=4, a=SLOW)
        return len(made["a"].hit_many(["x"] * 3)) == 3

    pid = killed_after(work)
    assert path.exists()
    return pid


def killed_after(work: Callable[[], bool]) -> int:
    """Runs it in a process that cleans nothing up, and has to succeed; the pid that was."""
    pid = os.fork()
    if pid == 0:
        try:
            if work():
                os.kill(os.getpid(), signal.SIGKILL)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    return pid


def listed(run: Run, name: str) -> dict[str, Any]:
    answer = run("list", "--json")
    assert answer.code == 0
    (found,) = [each for each in json.loads(answer.out) if each["name"] == name]
    assert isinstance(found, dict)
    return found


def inspected(run: Run, name: str, code: int = 0) -> dict[str, Any]:
    answer = run("inspect", name, "--json")
    assert answer.code == code
    facts = json.loads(answer.out)
    assert isinstance(facts, dict)
    return facts


def test_a_segment_in_use_is_listed_with_its_users(
    run: Run, limiter: shmlimit.Limiter, segment_name: str
) -> None:
    row = run("list").row(segment_name).split(maxsplit=6)
    assert row[4:] == ["100", "2", f"in use by {os.getpid()}"]
    found = listed(run, segment_name)
    assert (found["keys"], found["limits"]) == (100, ["a", "b"])
    assert (found["in_use"], found["pids"], found["refused"]) == (True, [os.getpid()], None)
    assert (found["path"], found["size_bytes"]) == (str(limiter.path), limiter.size_bytes)


def test_a_segment_left_behind_is_listed_inspected_and_removed(
    run: Run, left: int, segment_name: str, path: Path
) -> None:
    assert run("list").row(segment_name).endswith("left behind")
    facts = inspected(run, segment_name)
    assert (facts["in_use"], facts["pids"]) == (False, [])
    dead, shared = facts["workers"]
    assert (dead["pid"], dead["alive"], dead["counters"]["a"]["cells"]) == (left, False, 3)
    assert (shared["pid"], shared["alive"]) == (None, None)
    assert f"{left} gone" in run("inspect", segment_name).out
    assert run("remove", segment_name) == (0, f"removed {path}\n", "")
    assert not path.exists()


def test_inspect_shows_a_live_count(run: Run, limiter: shmlimit.Limiter, segment_name: str) -> None:
    for count in (1, 2, 3):
        limiter["a"].hit("x")
        facts = inspected(run, segment_name)
        assert facts["counters"]["a"]["allowed"] == count
        assert facts["slots"]["live"] == 1
        own = facts["workers"][0]
        assert (own["pid"], own["alive"]) == (os.getpid(), True)
    assert facts["limits"]["b"] == {
        "rate": "5/10min", "share": "5/10min", "mode": "enforce", "when_full": "evict",
        "scope": "global", "by_hand": False, "damage": None,
    }  # fmt: skip
    assert 0 <= facts["age_s"] < 600
    assert facts["damage"] is None
    text = run("inspect", segment_name).out
    assert f"{os.getpid()} alive" in text
    assert "1 live (0 uncommitted, 0 abandoned)" in text


@pytest.mark.parametrize("command", ["list", "inspect", "check-segment"])
def test_looking_changes_nothing(
    run: Run, limiter: shmlimit.Limiter, segment_name: str, command: str
) -> None:
    limiter["a"].hit("x")
    with SegmentFile.of(limiter.path) as file:
        before, found = bytes(file.memory), os.stat(limiter.path)
        answer = run(command, *([] if command == "list" else [segment_name]))
        assert (answer.code, answer.err) == (0, "")
        assert bytes(file.memory) == before
    after = os.stat(limiter.path)
    assert (after.st_mtime_ns, after.st_mode, after.st_ino, after.st_blocks) == (
        found.st_mtime_ns, found.st_mode, found.st_ino, found.st_blocks,
    )  # fmt: skip


def test_a_view_writes_to_a_copy_of_its_own(limiter: shmlimit.Limiter, segment_name: str) -> None:
    with viewed(segment_name, os.geteuid()) as view:
        assert view.table.limit("a").hit("x")  # what no monitor does
        assert limiter["a"].peek("x", 0).remaining == BURST
        assert limiter.counters()["a"]["allowed"] == 0


def test_a_view_is_left_out_of_core_dumps(limiter: shmlimit.Limiter, segment_name: str) -> None:
    with viewed(segment_name, os.geteuid()):
        maps = Path("/proc/self/smaps").read_text().split("VmFlags:")
    views = [i for i, text in enumerate(maps) if "rw-p" in text and f".{segment_name}\n" in text]
    assert len(views) == 1
    assert "dd" in maps[views[0] + 1].splitlines()[0].split()


def test_a_view_does_not_keep_a_segment_alive(segment_name: str, path: Path) -> None:
    limiter = shmlimit.Limiter(segment_name, keys=100, a=SLOW)
    with viewed(segment_name, os.geteuid()) as view:
        limiter.close()
        assert not path.exists(), "the last user removed the name beside a view"
        assert view.table.names() == ["a"], "which goes on seeing what there was"


def test_a_view_that_ends_removes_nothing(left: int, segment_name: str, path: Path) -> None:
    with viewed(segment_name, os.geteuid()):
        pass
    assert path.exists()
    path.unlink()


def test_asking_for_a_lock_takes_none(limiter: shmlimit.Limiter) -> None:
    descriptor = os.open(limiter.path, os.O_RDONLY)
    try:
        assert held(descriptor, USERS_BYTE)
        assert not held(descriptor, USERS_BYTE + 1)
        with opened(str(limiter.path)) as other:
            assert try_lock(other, USERS_BYTE + 1, EXCLUSIVE), "nor does asking for a free one"
            assert held(descriptor, USERS_BYTE + 1)
    finally:
        os.close(descriptor)


def test_views_are_not_among_the_users(left: int, segment_name: str, path: Path) -> None:
    with viewed(segment_name, os.geteuid()):
        assert segment_usage.usage_of(str(path), segment_usage.mapped_files()) == (False, [])
    path.unlink()


def test_remove_refuses_a_segment_in_use_unless_forced(
    run: Run, limiter: shmlimit.Limiter, segment_name: str
) -> None:
    refused = run("remove", segment_name)
    assert (refused.code, refused.out) == (1, "")
    assert f"in use by {os.getpid()}: stop that first; --force" in refused.err
    assert limiter.path.exists()
    forced = run("remove", "--force", segment_name)
    assert forced.code == 0
    assert forced.out.splitlines()[0] == f"removed {limiter.path}"
    assert f"in use by {os.getpid()}" in forced.out
    assert not limiter.path.exists()
    assert limiter["a"].hit("x")


def test_remove_sees_users_whose_memory_it_cannot_see(
    run: Run, limiter: shmlimit.Limiter, segment_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_usage, "_shared_files", lambda maps: set())
    answer = run("remove", segment_name)
    assert (answer.code, limiter.path.exists()) == (1, True)
    assert "is in use: stop that first" in answer.err


def test_remove_sees_users_that_came_meanwhile(
    run: Run, limiter: shmlimit.Limiter, segment_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was asked about before, and opened the segment since, holds the lock by now."""
    monkeypatch.setattr(segment_removal, "usage_of", lambda path, pids: None)
    answer = run("remove", segment_name)
    assert (answer.code, limiter.path.exists()) == (1, True)
    assert "is in use: stop that first" in answer.err


def test_remove_leaves_a_segment_that_has_the_name_by_then(
    run: Run, left: int, segment_name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock_late(descriptor: int, byte: int, kind: int) -> bool:
        path.unlink()
        path.write_bytes(b"a successor")
        return try_lock(descriptor, byte, kind)

    monkeypatch.setattr(segment_removal, "try_lock", lock_late)
    answer = run("remove", segment_name)
    assert (answer.code, path.read_bytes()) == (1, b"a successor")
    assert "was replaced meanwhile; try again" in answer.err
    path.unlink()


def test_remove_sees_users_that_lost_their_lock(
    run: Run, limiter: shmlimit.Limiter, segment_name: str
) -> None:
    os.close(limiter._segment._descriptor)  # as who daemonizes and closes all descriptors
    answer = run("remove", segment_name)
    assert (answer.code, limiter.path.exists()) == (1, True)
    assert f"in use by {os.getpid()}" in answer.err
    limiter.path.unlink()


def test_leftovers_of_creators_are_listed_and_removed(
    run: Run, segment_name: str, path: Path
) -> None:
    unfinished = Path(DIRECTORY + names.temporary_name(f"/{path.name}"))
    unfinished.write_bytes(b"\0" * 4096)
    with opened(str(unfinished)) as creator:
        assert try_lock(creator, USERS_BYTE, SHARED)
        assert run("list").row(segment_name).endswith("being made")
        assert run("remove", segment_name).code == 1, "it is not left yet"
        assert unfinished.exists()
    assert "left by a creator that died" in run("list").row(segment_name)
    assert run("remove", segment_name) == (0, f"removed {unfinished}\n", "")
    assert not unfinished.exists()


def test_pids_of_another_namespace_are_not_called_alive(
    run: Run, limiter: shmlimit.Limiter, segment_name: str
) -> None:
    limiter["a"].hit("x")
    with SegmentFile.of(limiter.path) as file:
        file.set_header("pid_ns_inode", 1)
    facts = inspected(run, segment_name)
    assert (facts["same_pid_namespace"], facts["workers"][0]["alive"]) == (False, None)
    assert f"{os.getpid()} unknown" in run("inspect", segment_name).out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes segments for another user")
def test_root_sees_the_segments_of_all_and_others_their_own(run: Run, segment_name: str) -> None:
    with shmlimit.Limiter(segment_name, keys=100, owner=NOBODY, a=SLOW) as limiter:
        assert run("list").row(segment_name)
        assert segment_name not in run("list", "--owner", "0").out
        assert run("inspect", segment_name).code == 1
        assert run("inspect", segment_name, "--owner", str(NOBODY)).code == 0
        assert run("remove", segment_name, "--owner", str(NOBODY)).code == 1
        as_user(NOBODY, lambda: run("list").row(segment_name) != "")
        as_user(NOBODY, lambda: run("inspect", segment_name).code == 0)
        as_user(NOBODY - 1, lambda: segment_name not in run("list").out)
        as_user(NOBODY - 1, lambda: inspect_refused(run, segment_name))
        limiter.path.unlink()


def inspect_refused(run: Run, name: str) -> bool:
    answer = run("inspect", name, "--owner", str(NOBODY))
    return answer.code == 1 and f"run as uid {NOBODY} or as root" in answer.err


def as_user(uid: int, holds: Callable[[], bool]) -> None:
    """Asserts it in a process of that user."""

    def work() -> bool:
        os.setuid(uid)
        return holds()

    killed_after(work)


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "no command": ((), "required: COMMAND"),
    "unknown command": (("lists",), "invalid choice"),
    "no name": (("inspect",), "required: NAME"),
    "a name no file can bear": (("remove", "a/b"), "accepted are 1 to 200 letters"),
    "a user's name": (("list", "--owner", "www"), "id -u NAME"),
    "no uid": (("list", "--owner", "4294967295"), "id -u NAME"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_usage_is_one_line_and_code_2(run: Run, wrong: str) -> None:
    arguments, told = WRONG[wrong]
    answer = run(*arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith("shmlimit")
    assert told in answer.err


@pytest.mark.parametrize("command", ["inspect", "check-segment", "remove"])
def test_a_segment_that_is_not_there(run: Run, segment_name: str, command: str) -> None:
    answer = run(command, segment_name)
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert f"no segment /dev/shm/shmlimit.{os.geteuid()}.{segment_name}" in answer.err


@pytest.mark.parametrize("command", ["list", "inspect", "check-segment", "remove"])
def test_no_shared_memory_directory(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    for module in ("segment", "segment_file", "segment_listing", "segment_removal"):
        monkeypatch.setattr(f"shmlimit.{module}.DIRECTORY", str(tmp_path / "missing"))
    answer = run(command, *([] if command == "list" else ["shop"]))
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert "mount a tmpfs" in answer.err


def shell(script: str) -> Answer:
    """Runs it with $RUN as `python -m shmlimit`, each command of a pipe with its code."""
    environment = os.environ | {"RUN": f"{sys.executable} -m shmlimit"}
    command = ["bash", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    return Answer(done.returncode, done.stdout, done.stderr)


def test_a_closed_pipe_is_no_error(limiter: shmlimit.Limiter, segment_name: str) -> None:
    assert shell(f"$RUN inspect {segment_name} | exec 0<&-") == (0, "", "")
    answer = shell(f"$RUN inspect {segment_name} | head -n 1")
    assert answer == (0, f"segment  {limiter.path}\n", "")
    assert shell("$RUN list >&-") == (0, "", "")


def test_a_full_disk_is_one_line(limiter: shmlimit.Limiter, segment_name: str) -> None:
    answer = shell(f"$RUN inspect {segment_name} >/dev/full")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "cannot be written: No space left on device" in answer.err
