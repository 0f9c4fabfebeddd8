"""The command line on files that are no segment to trust: told, never followed, never changed."""

from __future__ import annotations

import json
import os
import random
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmlimit
from shmlimit.commands.answer import BAD, FINE
from tests.segment_file import COUNTERS, LIMITS, SLOTS, SegmentFile
from tests.test_cli import Answer, Run, inspected, killed_after, listed, path, run

__all__ = ["path", "run"]  # fixtures

HEADER_BYTES = 4096


@pytest.fixture
def segment(segment_name: str, path: Path) -> Iterator[Path]:
    """A sound segment that its user left behind."""

    def work() -> bool:
        made = shmlimit.Limiter(segment_name, keys=100, workers=2, a="1/h burst 5", b="1/s")
        return all(made["a"].hit_many([f"key {number}" for number in range(20)]))

    killed_after(work)
    yield path
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def header(field: str, value: int | bytes) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        with SegmentFile.of(path) as file:
            file.set_header(field, value)

    return change


def replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        path.unlink()
        make(path)

    return change


def made_private(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def sparse(path: Path) -> None:
    """A sound header, and behind it a hole of the right size."""
    content = path.read_bytes()
    with open(path, "r+b") as file:
        file.truncate(HEADER_BYTES)
        file.truncate(len(content))


# What bears the name, and a part of the reason with which it is refused.
HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (replaced(os.mkfifo), "not a regular file"),
    "dangling link": (replaced(lambda path: path.symlink_to("nowhere")), "not a regular file"),
    "link": (replaced(lambda path: path.symlink_to("/etc/passwd")), "not a regular file"),
    "directory": (replaced(os.mkdir), "not a regular file"),
    "empty": (replaced(lambda path: made_private(path, b"")), "is empty"),
    "short": (replaced(lambda path: made_private(path, b"x" * 100)), "less than a header"),
    "garbage": (
        replaced(lambda path: made_private(path, random.Random(1).randbytes(9999))),
        "not made by shmlimit",
    ),
    "truncated": (lambda path: os.truncate(path, 3 * HEADER_BYTES), "its header states"),
    "sparse": (sparse, "has memory for"),
    "another layout": (header("layout_version", 4), "layout version 4, this shmlimit reads 3"),
    "geometry": (header("lines", 7), "directory that does not fit"),
    "another boot": (header("boot_id", b"x" * 16), "before the last boot"),
    "another clock": (header("clock_id", 7), "clock 7"),
    "another time namespace": (header("time_ns_inode", 1), "time namespace 1"),
    "open to others": (lambda path: path.chmod(0o644), "mode 0644"),
}


def state_of(path: Path) -> tuple[object, ...]:
    found = os.lstat(path)
    content = path.read_bytes() if stat.S_ISREG(found.st_mode) else b""
    return found.st_mode, found.st_ino, found.st_size, found.st_blocks, found.st_mtime_ns, content


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_trustworthy_segment_is_told_and_left_alone(
    run: Run, segment_name: str, segment: Path, kind: str
) -> None:
    damage, reason = HOSTILE[kind]
    damage(segment)
    before = state_of(segment)
    assert reason in run("list").row(segment_name)
    found = listed(run, segment_name)
    assert reason in found["refused"]
    assert (found["keys"], found["limits"]) == (None, None)
    for command in ("inspect", "check-segment"):
        answer = run(command, segment_name)
        assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
        assert reason in answer.err
    assert state_of(segment) == before


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind != "directory"])
def test_what_is_no_segment_can_be_removed(
    run: Run, segment_name: str, segment: Path, kind: str
) -> None:
    HOSTILE[kind][0](segment)
    assert run("remove", segment_name) == (0, f"removed {segment}\n", "")
    assert not segment.is_symlink()
    assert not segment.exists()


def test_a_directory_is_not_removed(run: Run, segment_name: str, segment: Path) -> None:
    HOSTILE["directory"][0](segment)
    answer = run("remove", "--force", segment_name)
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert "rmdir" in answer.err
    assert segment.is_dir()


def test_a_segment_of_another_layout_that_is_in_use_is_kept(
    run: Run, segment_name: str, path: Path
) -> None:
    with shmlimit.Limiter(segment_name, keys=100, a="1/s"):
        header("layout_version", 4)(path)
        assert f"in use by {os.getpid()}: segment" in run("list").row(segment_name)
        assert run("remove", segment_name).code == 1
        assert path.exists()


def test_structural_damage_is_shown_with_evidence(
    run: Run, segment_name: str, segment: Path
) -> None:
    assert run("check-segment", segment_name).code == 0
    with SegmentFile.of(segment) as file:
        index = file.used_slots()[0]
        file.set_slot(index, 0, file.slot(index)[1])
    answer = run("check-segment", segment_name)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "is damaged: stop the servers" in answer.err
    assert f"  slot {index}: a slot without a key is marked as consumed from" in answer.out
    facts = inspected(run, segment_name, code=1)
    assert "1 broken invariants" in facts["damage"]
    assert facts["slots"] is None
    text = run("inspect", segment_name)
    assert (text.code, "damaged: see check-segment" in text.out) == (1, True)


def test_a_limit_with_impossible_numbers_is_shown_as_damaged(
    run: Run, segment_name: str, segment: Path
) -> None:
    with SegmentFile.of(segment) as file:
        file.set_number(1, "interval_ticks", 0)
    facts = inspected(run, segment_name, code=1)
    assert facts["limits"]["a"]["rate"] == "1/h burst 5"
    assert "numbers that cannot be used" in facts["limits"]["b"]["damage"]
    assert "numbers that cannot be used" in run("inspect", segment_name).out


def test_names_do_not_reach_the_terminal_as_commands(
    run: Run, segment_name: str, segment: Path
) -> None:
    with SegmentFile.of(segment) as file:
        file.set_row_name(0, b"\x1b[2J\n\xff")
    text = run("inspect", segment_name).out
    assert "\x1b" not in text
    assert r"\x1b[2J\n" in text


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_give_an_answer(run: Run, segment_name: str, segment: Path, seed: int) -> None:
    draw = random.Random(seed)
    with SegmentFile.of(segment) as file:
        _, item_bytes, offset, items = file.section((LIMITS, COUNTERS, SLOTS)[seed % 3])
        file.memory[offset : offset + item_bytes * items] = draw.randbytes(item_bytes * items)
        if seed % 4 == 3:
            for field, bits in (("epoch_ns", 64), ("wall_offset_ns", 63), ("pid_ns_inode", 64)):
                file.set_header(field, draw.getrandbits(bits))
    answers: list[Answer] = [
        run(command, segment_name, *flags)
        for command, flags in (("inspect", []), ("inspect", ["--json"]), ("check-segment", []))
    ]
    assert {answer.code for answer in answers} <= {FINE, BAD}
    assert json.loads(answers[1].out)["path"] == str(segment)
    assert all(answer.out.isascii() for answer in answers)
    assert listed(run, segment_name)["keys"] == 100
