"""The hooks in process, with gunicorn's configuration and without a server.

What a whole server does is in test_gunicorn_server.py.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from gunicorn.config import KNOWN_SETTINGS, Config

import gunicorn_hooks
from shmlimit import Limiter


class Server(SimpleNamespace):
    """As much of gunicorn's Arbiter as the hooks use."""

    def __init__(self, **settings: object) -> None:
        super().__init__(log=logging.getLogger("arbiter"), WORKERS={})
        self.configure(**settings)

    def configure(self, **settings: object) -> None:
        """Reads the configuration: one that imports all hooks, and then has these settings."""
        self.cfg = Config()
        hooks = {name: getattr(gunicorn_hooks, name) for name in gunicorn_hooks.__all__}
        for name, value in {**hooks, **settings}.items():
            self.cfg.set(name, value)

    def hup(self, **settings: object) -> None:
        self.configure(**settings)
        self.cfg.nworkers_changed(self, 1, 1)
        self.cfg.on_reload(self)

    def start(self) -> None:
        self.cfg.nworkers_changed(self, 1, None)
        self.cfg.on_starting(self)


@pytest.fixture
def file(
    segment_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Iterator[Path]:
    """shmlimit.toml in the current directory; the hooks have opened nothing yet."""
    path = tmp_path / "shmlimit.toml"
    path.write_text(
        f'[table]\nname = "{segment_name}"\nkeys = 1000\n'
        '[limits.per_ip]\nrate = "100/s burst 500"\nkey = "ip"\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SHMLIMIT_CONFIG", raising=False)
    monkeypatch.setattr(gunicorn_hooks, "_limiter", None)
    monkeypatch.setattr(gunicorn_hooks, "start_agent", lambda *_: None)
    monkeypatch.setattr(gunicorn_hooks._composition, "_config", None)
    caplog.set_level(logging.INFO)
    yield path
    if gunicorn_hooks._limiter is not None:
        gunicorn_hooks._limiter.close()


def opened() -> Limiter:
    assert gunicorn_hooks._limiter is not None
    return gunicorn_hooks._limiter


def segment_file(segment_name: str, owner: int | None = None) -> Path:
    return Path(f"/dev/shm/shmlimit.{os.geteuid() if owner is None else owner}.{segment_name}")


def test_gunicorn_takes_the_hooks_and_nothing_else_from_the_module() -> None:
    settings = {setting.name for setting in KNOWN_SETTINGS}
    assert settings & set(vars(gunicorn_hooks)) == set(gunicorn_hooks.__all__)
    for name in gunicorn_hooks.__all__:
        Config().set(name, getattr(gunicorn_hooks, name))  # raises for another signature


def test_the_table_exists_from_on_starting_to_on_exit(file: Path, segment_name: str) -> None:
    server = Server()
    server.start()
    assert segment_file(segment_name).exists()
    server.cfg.on_exit(server)
    assert not segment_file(segment_name).exists()


def test_the_start_is_logged_in_one_line(
    file: Path, segment_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    gunicorn_hooks.on_starting(Server())
    (record,) = caplog.records
    assert str(segment_file(segment_name)) in record.message
    assert "MiB" in record.message
    assert "per_ip 100/s burst 500" in record.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a table for another user")
def test_the_table_belongs_to_the_user_that_workers_run_as(file: Path, segment_name: str) -> None:
    server = Server(user=65534)
    gunicorn_hooks.on_starting(server)
    path = segment_file(segment_name, 65534)
    assert path.stat().st_uid == 65534
    gunicorn_hooks.on_exit(server)
    assert not path.exists()


@pytest.mark.parametrize(("workers", "rows"), [(1, 64), (32, 64), (100, 200)])
def test_there_are_counters_for_twice_the_workers(file: Path, workers: int, rows: int) -> None:
    gunicorn_hooks.on_starting(Server(workers=workers))
    assert opened().config.table.workers == rows


def test_a_bad_configuration_ends_the_server_with_one_clear_line(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text('[table]\nname = "shop"\n[limits.a]\nrate = "often"\n')
    with pytest.raises(SystemExit) as exit_:
        gunicorn_hooks.on_starting(Server())
    assert exit_.value.code == 1
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is None
    assert str(file) in record.message
    assert "limits.a.rate" in record.message


def test_a_missing_file_ends_the_server_and_the_remedy_is_named(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.unlink()
    with pytest.raises(SystemExit) as exit_:
        gunicorn_hooks.on_starting(Server())
    assert exit_.value.code == 1
    assert "create it" in caplog.records[0].message
    gunicorn_hooks.on_exit(Server())  # nothing was opened, nothing fails


def test_raw_env_names_the_file(file: Path) -> None:
    other = file.rename(file.with_name("other.toml"))
    gunicorn_hooks.on_starting(Server(raw_env=[f"SHMLIMIT_CONFIG={other}"]))
    assert opened().config.path == other


def test_with_preload_app_the_table_is_made_before_the_application(file: Path) -> None:
    server = Server(preload_app=True)
    gunicorn_hooks.nworkers_changed(server, 1, None)
    made_first = opened()
    assert Limiter.from_config() is made_first  # what an application gets, in the master
    gunicorn_hooks.on_starting(server)
    assert opened() is made_first


@pytest.mark.parametrize(("preload_app", "before"), [(False, None), (True, 4)])
def test_a_changed_number_of_workers_makes_no_table(
    file: Path, preload_app: bool, before: int | None
) -> None:
    gunicorn_hooks.nworkers_changed(Server(preload_app=preload_app), 5, before)
    assert gunicorn_hooks._limiter is None


def test_a_worker_does_not_depend_on_what_the_file_says_by_then(file: Path) -> None:
    gunicorn_hooks.on_starting(Server())
    file.write_text("broken")
    assert Limiter.from_config() is opened()


def test_on_exit_waits_for_workers_that_are_being_killed(file: Path, segment_name: str) -> None:
    server = Server()
    gunicorn_hooks.on_starting(server)
    worker = os.fork()
    if worker == 0:
        signal.pause()
        os._exit(0)
    server.WORKERS[worker] = None
    os.kill(worker, signal.SIGKILL)
    gunicorn_hooks.on_exit(server)
    assert not segment_file(segment_name).exists()
    os.waitpid(worker, 0)


def test_on_exit_does_not_wait_for_workers_that_have_been_reaped(file: Path) -> None:
    server = Server()
    gunicorn_hooks.on_starting(server)
    worker = os.fork()
    if worker == 0:
        os._exit(0)
    os.waitpid(worker, 0)
    server.WORKERS[worker] = None
    gunicorn_hooks.on_exit(server)


def test_on_exit_waits_no_longer_than_it_says(
    file: Path, segment_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gunicorn_hooks, "KILLED_WORKERS_WAIT_S", 0.01)
    server = Server()
    gunicorn_hooks.on_starting(server)
    server.WORKERS[os.getpid()] = None  # this process will not end
    gunicorn_hooks.on_exit(server)
    assert not segment_file(segment_name).exists()  # nobody else uses it


def test_a_reload_publishes_what_the_file_says(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server()
    server.start()
    file.write_text(file.read_text().replace("100/s burst 500", "25/s"))
    server.hup()
    assert str(opened()["per_ip"].rates[0]) == "25/s"
    assert "shmlimit: reloaded: per_ip 25/s by ip" in caplog.messages


def test_a_reload_looks_where_raw_env_says_now(file: Path) -> None:
    server = Server()
    server.start()
    other = file.with_name("other.toml")
    other.write_text(file.read_text().replace("100/s burst 500", "25/s"))
    server.hup(raw_env=[f"SHMLIMIT_CONFIG={other}"])
    assert str(opened()["per_ip"].rates[0]) == "25/s"
    assert opened().config.path == other


@pytest.mark.parametrize("content", ["broken", None], ids=["broken", "missing"])
def test_a_reload_of_a_bad_file_changes_nothing_and_is_one_error(
    file: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    server = Server()
    server.start()
    config = opened().config
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    caplog.clear()
    server.hup()
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is None
    assert "stay as they are; correct this and send HUP again: " + str(file) in record.message
    assert opened().config is config
    assert Limiter.from_config() is opened()  # as a new worker finds it


def test_hooks_that_come_with_a_reload_open_the_table(file: Path, segment_name: str) -> None:
    server = Server()
    server.hup()
    assert segment_file(segment_name).exists()
    server.cfg.on_exit(server)
    assert not segment_file(segment_name).exists()


@pytest.mark.parametrize("hook", ["nworkers_changed", "on_reload", "on_exit"])
def test_no_hook_raises(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    server = Server()
    server.start()
    caplog.clear()
    broken = SimpleNamespace(log=server.log)  # anything else raises AttributeError
    arguments = (5, 4) if hook == "nworkers_changed" else ()
    monkeypatch.setattr(opened(), "reload", None)
    getattr(gunicorn_hooks, hook)(broken, *arguments)
    (record,) = caplog.records
    assert f"its hook {hook} failed and the server goes on; " in record.message
    assert record.exc_info is not None
    getattr(gunicorn_hooks, hook)(SimpleNamespace(), *arguments)  # not even without a log


def test_a_start_that_fails_for_an_unknown_reason_is_refused(
    file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Limiter, "from_config", None)
    server = Server()
    with pytest.raises(SystemExit) as exit_:
        server.start()
    assert exit_.value.code == 1
    (record,) = caplog.records
    assert "does not start without its limits" in record.message
    assert record.exc_info is not None


def test_hooks_of_ones_own_run_beside_ours(file: Path, segment_name: str) -> None:
    seen: list[tuple[str, bool]] = []  # was the table there?

    def saw(hook: str) -> None:
        seen.append((hook, segment_file(segment_name).exists()))

    own = {
        "on_starting": lambda server: saw("on_starting"),
        "on_reload": lambda server: saw("on_reload"),
        "on_exit": lambda server: saw("on_exit"),
    }
    server = Server(**own)
    server.start()
    for rate in ("25/s", "50/s"):  # each reload reads the configuration anew
        file.write_text(file.read_text().replace(str(opened()["per_ip"].rates[0]), rate))
        server.hup(**own)
        assert str(opened()["per_ip"].rates[0]) == rate
    server.cfg.on_exit(server)
    assert seen == [(hook, True) for hook in ("on_starting", "on_reload", "on_reload", "on_exit")]
    assert not segment_file(segment_name).exists()


def test_a_hook_of_ones_own_that_calls_ours_is_no_harm(file: Path) -> None:
    server = Server(on_starting=lambda server: gunicorn_hooks.on_starting(server))
    server.start()
    assert opened()["per_ip"].hit("k")


def test_what_a_hook_of_ones_own_raises_is_raised_and_ours_has_run(
    file: Path, segment_name: str
) -> None:
    def fails(server: object) -> None:
        raise LookupError("the user's")

    server = Server(on_exit=fails)
    server.start()
    with pytest.raises(LookupError, match="the user's"):
        server.cfg.on_exit(server)
    assert not segment_file(segment_name).exists()


def test_a_nworkers_changed_of_ones_own_that_does_not_call_ours_is_an_error(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def own(server: object, new_value: int, old_value: int | None) -> None:
        calls.append(new_value)

    server = Server(nworkers_changed=own, on_exit=lambda server: None)
    server.start()
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "call gunicorn_hooks.nworkers_changed(server, new_value, old_value)" in error.message
    assert opened()["per_ip"].hit("k")
    server.cfg.nworkers_changed(server, 2, 1)
    assert calls == [1, 2]


def test_threads_may_change_the_number_of_workers_while_the_server_reloads(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As gunicorn's control socket does."""
    server = Server(on_exit=lambda server: None)
    server.start()
    caplog.clear()

    def add_and_remove() -> None:
        for _ in range(100):
            server.cfg.nworkers_changed(server, 2, 1)
            server.cfg.nworkers_changed(server, 1, 2)

    with ThreadPoolExecutor(2) as threads:
        done = [threads.submit(add_and_remove) for _ in range(2)]
        for _ in range(20):
            server.hup(on_exit=lambda server: None)
    for future in done:
        future.result()
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert str(opened()["per_ip"].rates[0]) == "100/s burst 500"
