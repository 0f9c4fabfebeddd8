"""How a segment comes and goes: races of creation, crashes, leftovers, the last one out."""

from __future__ import annotations

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

import shmlimit
from shmlimit import segment as segments
from shmlimit import segment_name as names
from shmlimit import segment_opening as opening
from shmlimit.errors import SegmentError, SegmentNotFound
from shmlimit.lock import try_lock
from tests.conftest import Clock
from tests.segment_file import SegmentFile

fork = multiprocessing.get_context("fork")

BURST = 100
SLOW = f"1/h burst {BURST}"  # gives no cell back while a test runs
TIMEOUT_SECONDS = 60


def opened(name: str, clock: Clock | None = None) -> shmlimit.Limiter:
    return shmlimit.Limiter(name, keys=100, workers=8, clock=clock, a=SLOW)


@pytest.fixture
def path(segment_name: str) -> Path:
    return Path(names.DIRECTORY + names.segment_name(segment_name, os.geteuid()))


@pytest.fixture
def forked() -> Iterator[Callable[[Callable[[], None]], int]]:
    """Runs a function in a forked process that ends without any cleaning up; gives its pid."""
    pids: list[int] = []

    def start(work: Callable[[], None]) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        pids.append(pid)
        return pid

    yield start
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):  # the test has seen its end
            pass


def files(path: Path) -> list[str]:
    """The segment, and what is being made for it."""
    suffix = path.name.removeprefix("shmlimit")
    return sorted(file.name for file in path.parent.glob(f"shmlimit*{suffix}*"))


def before_the_next_lock(patch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Lets something happen between the moment a segment is found and the moment it is held."""

    def lock_late(descriptor: int, byte: int, kind: int) -> bool:
        for module in (segments, opening):
            patch.setattr(module, "try_lock", try_lock)
        happens()
        return try_lock(descriptor, byte, kind)

    for module in (segments, opening):
        patch.setattr(module, "try_lock", lock_late)


def all_at_once(work: Callable[..., None], processes: int, *arguments: object) -> None:
    """Runs it in that many processes. The last argument that they get is the barrier they start
    behind."""
    starts = fork.Barrier(processes)
    workers = [fork.Process(target=work, args=(*arguments, starts)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(TIMEOUT_SECONDS)
    assert [worker.exitcode for worker in workers] == [0] * processes


def racing(name: str, starts: Barrier, ends: Barrier, admitted: multiprocessing.Queue[int]) -> None:
    starts.wait(TIMEOUT_SECONDS)
    with opened(name) as limiter:
        admitted.put(sum(limiter["a"].allow("x") for _ in range(BURST // 4)))
        ends.wait(TIMEOUT_SECONDS)  # or the last of the first would remove it before the others


@pytest.mark.parametrize("turn", range(5))
def test_eight_that_create_at_once_share_one_table(
    segment_name: str, path: Path, turn: int
) -> None:
    starts, ends = fork.Barrier(8), fork.Barrier(9)
    admitted: multiprocessing.Queue[int] = fork.Queue()
    work = (segment_name, starts, ends, admitted)
    workers = [fork.Process(target=racing, args=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    cells = sum(admitted.get(timeout=TIMEOUT_SECONDS) for _ in workers)
    assert files(path) == [path.name], "one segment, and no temporary file"
    ends.wait(TIMEOUT_SECONDS)
    for worker in workers:
        worker.join(TIMEOUT_SECONDS)
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert cells == BURST
    assert files(path) == [], "the last one out removes it"


def test_closing_late_leaves_the_segment_that_has_the_name_by_then(
    segment_name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(segment_name)
    successors: list[shmlimit.Limiter] = []

    def removed_and_made_again() -> None:
        path.unlink()
        successors.append(opened(segment_name))

    before_the_next_lock(monkeypatch, removed_and_made_again)
    first.close()
    (successor,) = successors
    with successor, opened(segment_name) as again:
        assert successor["a"].hit("x")
        assert again["a"].peek("x", 0).remaining == BURST - 1
    assert files(path) == []


def come_and_go(name: str, turns: int, starts: Barrier) -> None:
    starts.wait(TIMEOUT_SECONDS)
    for _ in range(turns):
        with opened(name) as limiter:
            assert limiter["a"].peek("x", 0).limit == BURST


def test_coming_and_going_at_once_never_fails(segment_name: str, path: Path) -> None:
    all_at_once(come_and_go, 6, segment_name, 150)
    assert files(path) == []


def test_a_segment_removed_while_it_is_attached_is_not_used(
    segment_name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last user goes between the moment it is found and the moment it is held."""
    first = opened(segment_name)

    def its_last_user_goes() -> None:
        first.close()
        assert not path.exists()

    before_the_next_lock(monkeypatch, its_last_user_goes)
    with opened(segment_name) as second:
        assert path.stat().st_ino == os.stat(second.path).st_ino
        assert path.stat().st_nlink == 1
        second["a"].hit("x")
        with opened(segment_name) as third:
            assert third["a"].peek("x", 0).remaining == BURST - 1, "both have one table"
    assert files(path) == []


def test_the_last_one_out_removes_it(
    segment_name: str, path: Path, forked: Callable[[Callable[[], None]], int]
) -> None:
    first, second = opened(segment_name), opened(segment_name)
    inherited = forked(signal.pause)
    first.close()
    assert path.exists()
    second.close()
    assert path.exists(), "a forked process has it still"
    os.kill(inherited, signal.SIGKILL)
    os.waitpid(inherited, 0)
    with opened(segment_name) as third:
        assert third.path == path
    assert not path.exists()


def test_what_a_crash_left_is_taken_over_with_its_buckets(
    segment_name: str, path: Path, clock: Clock, forked: Callable[[Callable[[], None]], int]
) -> None:
    ready_reads, ready_writes = os.pipe()

    def crash() -> None:
        limiter = opened(segment_name, clock)
        for _ in range(40):
            limiter["a"].hit("x")
        os.write(ready_writes, b"1")
        signal.pause()

    users = [forked(crash) for _ in range(2)]
    assert [os.read(ready_reads, 1) for _ in users] == [b"1", b"1"]
    for pid in users:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.close(ready_reads)
    os.close(ready_writes)
    assert files(path) == [path.name]
    with opened(segment_name, clock) as limiter:
        limiter.check()
        assert limiter["a"].peek("x", 0).remaining == BURST - 80
        assert limiter.counters()["a"]["allowed"] == 80
    assert files(path) == []


def left_by_a_crash(name: str, forked: Callable[[Callable[[], None]], int]) -> None:
    def crash() -> None:
        opened(name)["a"].hit("x")
        os._exit(0)

    assert os.waitpid(forked(crash), 0)[1] == 0


def test_what_a_crash_left_with_damage_is_made_anew(
    segment_name: str,
    path: Path,
    forked: Callable[[Callable[[], None]], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    left_by_a_crash(segment_name, forked)
    with SegmentFile.of(path) as file:
        file.set_slot(0, fp=0, v=3)
    with opened(segment_name) as limiter:
        limiter.check()
        assert limiter["a"].peek("x", 0).remaining == BURST, "none of its buckets is trusted"
        assert any("made anew" in message for message in caplog.messages)


def test_what_a_crash_left_with_another_size_is_made_anew(
    segment_name: str,
    path: Path,
    forked: Callable[[Callable[[], None]], int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    left_by_a_crash(segment_name, forked)
    size_bytes = path.stat().st_size
    with shmlimit.Limiter(segment_name, keys=100_000, a=SLOW) as limiter:
        assert limiter["a"].peek("x", 0).remaining == BURST
        assert path.stat().st_size > size_bytes
    (message,) = caplog.messages
    assert "made for 100 keys, not for 100000" in message


def test_only_one_process_gets_a_segment_that_was_left_behind_until_it_has_checked_it(
    segment_name: str, forked: Callable[[Callable[[], None]], int]
) -> None:
    left_by_a_crash(segment_name, forked)
    first = opening.attach(segment_name, os.geteuid(), None)
    assert first.left_behind
    with pytest.raises(SegmentNotFound, match="checks or removes"):
        opening.attach(segment_name, os.geteuid(), None)
    first.share()
    second = opening.attach(segment_name, os.geteuid(), None)
    assert not second.left_behind
    second.close()
    first.close()


def use_and_check(name: str, ends: Barrier, starts: Barrier) -> None:
    starts.wait(TIMEOUT_SECONDS)
    with opened(name) as limiter:
        limiter.check()
        ends.wait(TIMEOUT_SECONDS)


def test_several_that_find_a_damaged_one_at_once_use_one_sound_one(
    segment_name: str, path: Path, forked: Callable[[Callable[[], None]], int]
) -> None:
    for _ in range(5):
        left_by_a_crash(segment_name, forked)
        with SegmentFile.of(path) as file:
            file.set_slot(0, fp=0, v=3)
        all_at_once(use_and_check, 4, segment_name, fork.Barrier(4))
        assert files(path) == []


def test_what_the_code_asks_for_counts_after_a_crash(
    segment_name: str, forked: Callable[[Callable[[], None]], int]
) -> None:
    left_by_a_crash(segment_name, forked)
    with shmlimit.Limiter(segment_name, keys=100, a="7/s") as limiter:
        assert str(limiter["a"].rates[0]) == "7/s"


def test_a_second_name_left_by_a_killed_creator_hides_no_removal(
    segment_name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A creator that is killed after the link leaves its temporary name: the file then has a link
    when its name has gone."""
    first = opened(segment_name)
    temporary = path.with_name(names.temporary_name(f"/{path.name}")[1:])
    os.link(path, temporary)

    def its_last_user_goes() -> None:
        first.close()
        assert not path.exists()

    before_the_next_lock(monkeypatch, its_last_user_goes)
    with opened(segment_name) as second, opened(segment_name) as third:
        second["a"].hit("x")
        assert third["a"].peek("x", 0).remaining == BURST - 1, "both have one table"
        assert files(path) == [path.name], "and the leftover is gone"


def test_a_running_segment_with_damage_is_attached_and_left_alone(
    segment_name: str, path: Path
) -> None:
    with opened(segment_name) as running:
        running["a"].hit("x")
        with SegmentFile.of(path) as file:
            file.set_slot(0, fp=0, v=3)
        with opened(segment_name) as second:
            assert second["a"].peek("x", 0).remaining == BURST - 1


def test_its_memory_is_not_in_a_core_dump(segment_name: str) -> None:
    with opened(segment_name):
        entries = Path("/proc/self/smaps").read_text().split(segment_name)
        assert len(entries) == 2
        flags = next(line for line in entries[1].splitlines() if line.startswith("VmFlags:"))
        assert "dd" in flags.split()


def killed_at_link(name: str) -> None:
    """A creator that dies when its segment is complete but for the name."""
    os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    opened(name)


def test_a_creator_killed_midway_leaves_only_what_the_next_one_sweeps(
    segment_name: str, path: Path, forked: Callable[[Callable[[], None]], int]
) -> None:
    for _ in range(3):
        creator = forked(lambda: killed_at_link(segment_name))
        assert os.waitstatus_to_exitcode(os.waitpid(creator, 0)[1]) == -signal.SIGKILL
        assert not path.exists()
        (left,) = files(path)  # and the one before is gone
        assert left.startswith("shmlimit-tmp.")
    with opened(segment_name) as limiter:
        assert files(path) == [path.name]
        assert limiter["a"].hit("x").remaining == BURST - 1
    assert files(path) == []


def test_a_creator_at_work_is_not_swept_and_comes_second(
    segment_name: str, path: Path, forked: Callable[[Callable[[], None]], int]
) -> None:
    go_reads, go_writes = os.pipe()
    at_link_reads, at_link_writes = os.pipe()
    real = os.link

    def late(source: str, target: str) -> None:
        os.write(at_link_writes, b"1")
        os.read(go_reads, 1)
        real(source, target)

    def create_slowly() -> None:
        os.link = late  # type: ignore[assignment]
        with opened(segment_name) as limiter:
            assert limiter["a"].hit("x").remaining == BURST - 2

    slow = forked(create_slowly)
    os.read(at_link_reads, 1)
    with opened(segment_name) as limiter:
        assert limiter["a"].hit("x").remaining == BURST - 1
        assert len(files(path)) == 2, "the temporary file of the one at work is still there"
        os.write(go_writes, b"1")
        assert os.waitpid(slow, 0)[1] == 0
        assert files(path) == [path.name]
        assert limiter["a"].peek("x", 0).remaining == BURST - 2
    for descriptor in (go_reads, go_writes, at_link_reads, at_link_writes):
        os.close(descriptor)


def test_leftovers_of_other_names_are_left_alone(segment_name: str, path: Path) -> None:
    temporary = names.temporary_name(f"/{path.name}-2")[1:]
    others = [path.with_name(temporary), path.with_name(f"{path.name}.tmp-0123456789abcdef")]
    for other in others:
        other.write_bytes(b"")
    with opened(segment_name):
        assert all(other.exists() for other in others)
    for other in others:
        other.unlink()


@pytest.mark.parametrize("umask", [0, 0o777, 0o277, 0o022])
@pytest.mark.parametrize("uid", [0, 12345])
def test_the_mode_is_0600_whatever_the_umask(
    segment_name: str, forked: Callable[[Callable[[], None]], int], umask: int, uid: int
) -> None:
    if os.geteuid() != 0 and uid:
        pytest.skip("only root can become another user")

    def create() -> None:
        if uid:
            os.setuid(uid)
        os.umask(umask)
        with opened(segment_name) as limiter:
            status = limiter.path.stat()
            assert (status.st_mode & 0o7777, status.st_uid) == (0o600, os.geteuid())
            assert limiter["a"].hit("x")
            with opened(segment_name) as other:
                assert other["a"].peek("x", 0).remaining == BURST - 1

    assert os.waitpid(forked(create), 0)[1] == 0


def test_root_makes_it_for_the_user_that_workers_run_as(
    segment_name: str, forked: Callable[[Callable[[], None]], int]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    with shmlimit.Limiter(segment_name, keys=100, workers=8, owner=12345, a=SLOW) as limiter:
        status = limiter.path.stat()
        assert (status.st_mode & 0o7777, status.st_uid) == (0o600, 12345)
        assert limiter.path.name == f"shmlimit.12345.{segment_name}"

        def attach() -> None:
            os.setuid(12345)
            with opened(segment_name) as other:
                assert other["a"].hit("x").remaining == BURST - 1

        assert os.waitpid(forked(attach), 0)[1] == 0
        assert limiter["a"].peek("x", 0).remaining == BURST - 1


def test_only_root_makes_it_for_another_user(
    segment_name: str, forked: Callable[[Callable[[], None]], int]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user first")

    def create() -> None:
        os.setuid(12345)
        with pytest.raises(
            SegmentError, match=r"only root may make segments for .* \(here 54321\)"
        ):
            shmlimit.Limiter(segment_name, keys=100, owner=54321, a=SLOW)
        left = list(Path(names.DIRECTORY).glob(f"shmlimit.*.{segment_name}*"))
        assert left == []

    assert os.waitpid(forked(create), 0)[1] == 0
