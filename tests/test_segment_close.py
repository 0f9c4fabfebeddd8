"""What a close gives back, and what openings that fail leave behind: nothing."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmlimit
from shmlimit import segment as segments
from shmlimit import segment_creation as creation
from shmlimit import segment_opening as opening
from shmlimit.errors import (
    ConfigError,
    NotEnoughMemory,
    SegmentError,
    SegmentNotFound,
    WrongKeys,
)
from shmlimit.segment_name import DIRECTORY


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings(name: str) -> int:
    return Path("/proc/self/maps").read_text().count(name)


@pytest.mark.usefixtures("without_collector")
def test_a_closed_limiter_gives_back_its_memory_and_descriptors(segment_name: str) -> None:
    before = descriptors()
    for _ in range(3):
        limiter = shmlimit.Limiter(segment_name, keys=100, a="1/s")
        limiter["a"].hit("x")
        assert mappings(segment_name) == 1
        limiter.close()
        assert mappings(segment_name) == 0
        assert descriptors() == before


@pytest.mark.usefixtures("without_collector")
def test_a_limit_that_is_kept_keeps_the_memory(segment_name: str) -> None:
    limiter = shmlimit.Limiter(segment_name, keys=100, a="1/s")
    limit = limiter["a"]
    limiter.close()
    assert mappings(segment_name) == 1
    with pytest.raises(shmlimit.LimiterClosed):
        limit.hit("x")
    del limit
    assert mappings(segment_name) == 0


@pytest.mark.usefixtures("without_collector")
def test_openings_that_fail_keep_nothing(segment_name: str) -> None:
    with shmlimit.Limiter(segment_name, keys=100, a="1/s"):
        before = descriptors()
        for _ in range(3):
            with pytest.raises(WrongKeys):
                shmlimit.Limiter(segment_name, keys=50_000, a="1/s")
        assert mappings(segment_name) == 1
        assert descriptors() == before


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize("step", ["open_file", "_reserve", "_header", "Segment"])
def test_a_creation_that_fails_anywhere_leaves_nothing(
    segment_name: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    before = descriptors()
    with monkeypatch.context() as patch:
        patch.setattr(creation, step, fail)
        with pytest.raises(SegmentError, match="ulimit -n"):
            shmlimit.Limiter(segment_name, keys=100, a="1/s")
    assert list(Path(DIRECTORY).glob(f"*{segment_name}*")) == []
    assert descriptors() == before


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
        (errno.ENOMEM, "ulimit -v"),
        (errno.ENOSPC, "inodes"),
        (errno.EACCES, "may write to"),
        (errno.EROFS, "may write to"),
    ],
)
def test_each_refusal_of_the_system_has_its_remedy(
    segment_name: str, number: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(opening, "create", refuse)
    with pytest.raises(SegmentError, match=remedy) as told:
        shmlimit.Limiter(segment_name, keys=100, a="1/s")
    assert not isinstance(told.value, NotEnoughMemory)


def in_a_new_process(code: str, *command: str) -> str:
    done = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def test_a_limit_of_file_size_is_named(segment_name: str) -> None:
    code = f"import shmlimit; shmlimit.Limiter({segment_name!r}, keys=100_000, a='1/s')"
    told = in_a_new_process(code, "sh", "-c", 'ulimit -f 100; trap "" XFSZ; exec "$@"', "sh")
    assert "SegmentError" in told
    assert "ulimit -f" in told


Make = Callable[[str], shmlimit.Limiter]

NOT_ACCEPTED: dict[str, tuple[type[Exception], str, Make]] = {
    "clock": (TypeError, "nanoseconds", lambda name: shmlimit.Limiter(name, clock=5)),  # type: ignore[arg-type]
    "owner by name": (ConfigError, "getpwnam", lambda name: shmlimit.Limiter(name, owner="root")),  # type: ignore[arg-type]
    "owner -1": (ConfigError, "number of a user", lambda name: shmlimit.Limiter(name, owner=-1)),
    "owner 2**40": (ConfigError, "number of a", lambda name: shmlimit.Limiter(name, owner=2**40)),
    "owner True": (ConfigError, "number of a", lambda name: shmlimit.Limiter(name, owner=True)),
}


@pytest.mark.parametrize("what", NOT_ACCEPTED)
def test_what_is_not_accepted_is_named(segment_name: str, what: str) -> None:
    error, told, make = NOT_ACCEPTED[what]
    with pytest.raises(error, match=told):
        make(segment_name)


def test_a_running_limit_with_another_mode_is_logged(
    segment_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    slow = shmlimit.LimitConfig(
        "a", shmlimit.Rate.parse_several("1/s"), mode="off", when_full="allow"
    )
    strict = shmlimit.LimitConfig("a", shmlimit.Rate.parse_several("1/s"))
    with shmlimit.Limiter(segment_name, keys=100, a=slow) as limiter:
        with shmlimit.Limiter(segment_name, keys=100, a=slow):
            assert caplog.messages == []
        with shmlimit.Limiter(segment_name, keys=100, a=strict):
            (message,) = caplog.messages
        assert "off, allow when full" in message
        assert "enforce, evict when full" in message
        assert limiter["a"].mode == "off"


def test_memory_that_another_maker_of_the_segment_takes_is_no_failure(
    segment_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for one table; two processes make it at once, and one of them is faster."""
    create, made = creation.create, list[segments.Segment]()

    def too_late(*args: Any) -> segments.Segment:
        monkeypatch.setattr(opening, "create", create)
        made.append(create(*args))
        raise NotEnoughMemory("the other has it")

    monkeypatch.setattr(opening, "create", too_late)
    with shmlimit.Limiter(segment_name, keys=100, a="1/s") as limiter:
        assert str(limiter.path) == made[0].path
        made[0].close()


def test_a_segment_that_is_there_is_never_made_a_second_time(
    segment_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one checks it alone, the others wait; a table of their own would need memory too."""
    with shmlimit.Limiter(segment_name, keys=100, a="1/s"):
        attach, seen = opening.attach, list[str]()

        def held(*args: Any) -> segments.Segment:
            seen.append("held")
            if len(seen) == 5:
                monkeypatch.setattr(opening, "attach", attach)
            raise SegmentNotFound("held")

        monkeypatch.setattr(opening, "attach", held)
        monkeypatch.setattr(opening, "create", lambda *_: pytest.fail("made again"))
        shmlimit.Limiter(segment_name, keys=100, a="1/s").close()
        assert len(seen) == 5
