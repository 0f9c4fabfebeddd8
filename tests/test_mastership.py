"""Masters of servers: one a segment, unless they are meant to be several."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmlimit import Limiter
from shmlimit.errors import SegmentInUse
from shmlimit.limiter import _open_limiters
from shmlimit.lock import EXCLUSIVE, MASTER_BYTE, opened, try_lock
from shmlimit.mastership import Mastership
from shmlimit.segment_creation import Role
from tests.processes import ended_by, forked


@pytest.fixture
def file(tmp_path: Path, segment_name: str) -> Path:
    return written(tmp_path / "shmlimit.toml", segment_name)


def written(path: Path, name: str, *lines: str) -> Path:
    table = "\n".join(["[table]", f'name = "{name}"', 'keys = "1k"', *lines])
    path.write_text(f'{table}\n[limits.per_ip]\nrate = "10/h"\nkey = "ip"\n')
    return path


@pytest.fixture
def master(file: Path) -> Iterator[Limiter]:
    limiter = Limiter.from_config(file, role="master")
    _open_limiters.clear()  # from here on this process stands for others too
    yield limiter
    limiter.close()


def another(path: Path, role: Role) -> Limiter:
    """As another process opens it."""
    _open_limiters.clear()
    limiter = Limiter.from_config(path, role=role)
    _open_limiters.clear()
    return limiter


def test_a_second_master_is_refused_and_told_what_to_do(master: Limiter, file: Path) -> None:
    assert master["per_ip"].hit("x")
    before = os.stat(master.path)
    with pytest.raises(SegmentInUse) as refusal:
        another(file, "master")
    told = str(refusal.value)
    assert str(master.path) in told
    assert "another `name` in [table]" in told
    assert "shared = true" in told
    assert os.stat(master.path).st_ino == before.st_ino
    assert master["per_ip"].peek("x", 0).remaining == 9


def test_it_is_told_who_runs(file: Path) -> None:
    with Limiter.from_config(file, role="master"), forked(lambda: another(file, "user")) as pid:
        users = ", ".join(map(str, sorted([os.getpid(), pid])))

        def start() -> None:
            with pytest.raises(SegmentInUse, match=rf"in use by {users}\)"):
                another(file, "master")

        with forked(start):
            pass


def test_masters_that_are_meant_to_share_do(master: Limiter, file: Path, tmp_path: Path) -> None:
    shared = written(tmp_path / "second.toml", master.name, "shared = true")
    second = another(shared, "master")
    assert second["per_ip"].hit("x")
    assert master["per_ip"].peek("x", 0).remaining == 9
    with pytest.raises(SegmentInUse):
        another(file, "master")
    second.close()
    assert master.path.exists()


def test_an_upgrade_runs_beside_its_predecessor_and_then_alone(master: Limiter, file: Path) -> None:
    upgraded = another(file, "upgrade")
    master.close()
    with pytest.raises(SegmentInUse):
        another(file, "master")
    upgraded.close()
    another(file, "master").close()


def test_whoever_is_no_master_may_join(master: Limiter, file: Path) -> None:
    another(file, "user").close()
    with Limiter(master.name, keys=1000, per_ip="10/h") as limiter:
        assert limiter.path == master.path


def test_workers_that_outlive_their_master_do_not_keep_the_next_one_out(file: Path) -> None:
    """They hold the table, and with it their descriptors, but not the mark."""
    read, write = os.pipe()

    def start() -> None:
        limiter = another(file, "master")
        worker = os.fork()
        if worker == 0:
            limiter["per_ip"].hit("x")
        os.write(write, b"%d\n" % os.getpid())
        signal.pause()

    with forked(start, ready=False) as pid:
        both = sorted(int(os.read(read, 100).splitlines()[0]) for _ in range(2))
        (worker,) = set(both) - {pid}
        try:
            with pytest.raises(SegmentInUse):
                another(file, "master")
            ended_by(pid, signal.SIGKILL)
            second = another(file, "master")
            assert second["per_ip"].peek("x", 0).remaining == 9, "it is the orphans' table"
            second.close()
            second.path.unlink()  # the orphan has it still
        finally:
            os.kill(worker, signal.SIGKILL)
    os.close(read)
    os.close(write)


def test_a_forked_child_has_no_descriptor_of_the_mark(master: Limiter) -> None:
    mark = master._segment._mastership
    assert mark is not None
    number = mark._descriptor
    with forked(lambda: None) as pid:
        assert not Path(f"/proc/{pid}/fd/{number}").exists()
        assert Path(f"/proc/self/fd/{number}").exists()


def test_publishing_and_looking_do_not_drop_the_mark(master: Limiter, file: Path) -> None:
    """Both open and close the file in this process, which a record lock would not survive."""
    master["per_ip"].reset()
    master.reload(file)
    with opened(str(master.path)):
        pass
    gc.collect()
    with opened(str(master.path)) as descriptor:
        assert not try_lock(descriptor, MASTER_BYTE, EXCLUSIVE)


def test_a_mark_whose_descriptor_somebody_closed_closes_no_other_file(master: Limiter) -> None:
    mark = Mastership.taken(master._segment._descriptor, beside=True)
    assert mark is not None
    number = mark._descriptor
    os.close(number)
    other = os.open("/dev/null", os.O_RDONLY)
    if other != number:
        os.dup2(other, number)
        os.close(other)
    mark.close()
    os.fstat(number)
    os.close(number)


def test_a_limiter_that_is_open_already_becomes_its_masters(file: Path) -> None:
    """As when the application was imported before the hooks ran."""
    with Limiter.from_config(file) as limiter:
        assert Limiter.from_config(file, role="master") is limiter
        with pytest.raises(SegmentInUse):
            another(file, "master")
