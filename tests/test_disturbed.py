"""Calls in whose middle something else runs: another thread, a signal handler, a fork.

The first decision of a process opens files in /proc, and there others may run. The tests put them
exactly there.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmlimit
from shmlimit import process
from shmlimit import segment as segments
from shmlimit import segment_opening as opening
from shmlimit.errors import LimiterClosed, SegmentError, SegmentNotFound

Disturb = Callable[[Callable[[], object]], None]


@pytest.fixture
def limiter(segment_name: str) -> Iterator[shmlimit.Limiter]:
    with shmlimit.Limiter(segment_name, keys=1000, a="1/h burst 1000") as made:
        yield made


@pytest.fixture
def disturb(monkeypatch: pytest.MonkeyPatch) -> Disturb:
    """Runs something, once, when this process next looks into /proc."""

    def prepare(disturbance: Callable[[], object]) -> None:
        read = process._stat

        def read_disturbed(pid: int) -> bytes:
            monkeypatch.setattr(process, "_stat", read)
            disturbance()
            return read(pid)

        monkeypatch.setattr(process, "_stat", read_disturbed)

    return prepare


def test_a_batch_that_is_shortened_before_its_keys_are_read(
    limiter: shmlimit.Limiter, disturb: Disturb
) -> None:
    keys = [f"key-{i}" for i in range(10_000)]
    disturb(keys.clear)
    assert limiter["a"].hit_many(keys) == []
    assert limiter["a"].hit_many(["x"])[0].allowed


@pytest.mark.parametrize("call", ["hit", "allow", "peek", "clear"])
def test_a_limiter_closed_in_the_middle_of_a_call_is_closed(
    limiter: shmlimit.Limiter, disturb: Disturb, call: str
) -> None:
    limit = limiter["a"]
    disturb(limiter.close)
    for _ in range(2):
        with pytest.raises(LimiterClosed):
            getattr(limit, call)("x")


def test_a_child_forked_while_limits_are_published_does_not_keep_the_lock(
    limiter: shmlimit.Limiter, segment_name: str
) -> None:
    with limiter._segment.publisher_lock():
        pid = os.fork()
        if pid == 0:
            signal.pause()
    try:
        limiter["a"].reset()
        with shmlimit.Limiter(segment_name, keys=1000, b="1/s") as second:
            assert set(second) == {"a", "b"}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_publishing_while_one_publishes_ends_with_the_remedy(
    limiter: shmlimit.Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler might; or another process that was stopped."""
    monkeypatch.setattr(segments, "PUBLISHER_WAIT_S", 0.01)
    with (
        limiter._segment.publisher_lock(),
        pytest.raises(SegmentError, match="continue or end it"),
    ):
        limiter["a"].reset()
    limiter["a"].reset()


def test_a_segment_that_is_being_removed_is_waited_for(
    segment_name: str, limiter: shmlimit.Limiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last user has the lock and is preempted before it removes the name."""
    tries: list[float] = []
    attach = opening.attach

    def removed_later(*args: Any) -> segments.Segment:
        tries.append(time.monotonic())
        if len(tries) <= 50:
            raise SegmentNotFound("being removed")
        return attach(*args)

    monkeypatch.setattr(opening, "attach", removed_later)
    with shmlimit.Limiter(segment_name, keys=1000, a="1/h burst 1000") as second:
        assert second.path == limiter.path
    assert tries[-1] - tries[0] >= 50 * 0.001, "it does not spin"


@pytest.mark.parametrize("other", ["file", "nothing"])
def test_a_descriptor_that_others_closed_is_not_used(
    segment_name: str, other: str, tmp_path: Any
) -> None:
    """As by os.closerange, when a daemon is made of the process."""
    limiter = shmlimit.Limiter(segment_name, keys=1000, a="1/s")
    number = limiter._segment._descriptor
    os.close(number)
    if other == "file":
        (tmp_path / "log").touch()
        log = os.open(tmp_path / "log", os.O_RDWR)
        if log != number:  # a lower number was free
            os.dup2(log, number)
            os.close(log)
    with pytest.raises(SegmentError, match="daemonizing"):
        limiter["a"].reset()
    limiter.close()
    assert not limiter.path.exists()
    if other == "file":
        os.close(number)  # raises if close had closed it
