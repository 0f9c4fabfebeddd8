"""Which source a text makes, the simple ones, and those that are code of the user's own."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shmlimit.errors import ConfigError, ShmlimitError, SourceFailed
from shmlimit.hosts.imported import ImportedSource
from shmlimit.hosts.scheme import source_of
from shmlimit.hosts.settings import HostsConfig
from shmlimit.hosts.source import HostSource, Reading

MODULE = """
from shmlimit.errors import SourceFailed
from shmlimit.hosts.source import HostSource, Reading

answer = 3

def hosts():
    if isinstance(answer, Exception):
        raise answer
    return answer

class Fleet(HostSource):
    closed = 0

    def read(self):
        return answer

    def watch(self, changed):
        changed()

    def close(self):
        Fleet.closed += 1

class Broken(HostSource):
    def __init__(self):
        raise OSError("no fleet")

    def read(self): ...

class Group:
    hosts = staticmethod(hosts)

fleet = Fleet()
number = 7
"""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A user's module, importable as `user_fleet`."""
    (tmp_path / "user_fleet.py").write_text(MODULE)
    (tmp_path / "user_broken.py").write_text("raise RuntimeError('not here')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "user_fleet", raising=False)
    import user_fleet  # type: ignore[import-not-found]

    return user_fleet


def source(text: str) -> HostSource:
    return source_of(HostsConfig(source=text, fallback=1, reread=20))


def fault(text: str) -> str:
    with pytest.raises(SourceFailed) as failure:
        source(text).read()
    assert "accepted: " in str(failure.value)
    assert isinstance(failure.value, ShmlimitError)
    return str(failure.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("static:3", "StaticSource"),
        ("file:/etc/shop/hosts", "FileSource"),
        ("dns:web.test", "AddressSource"),
        ("dns+srv:web.test", "ServiceSource"),
        ("env:SHOP_HOSTS", "EnvSource"),
        ("user_fleet:hosts", "ImportedSource"),
    ],
)
def test_each_text_makes_its_source_and_names_it(fleet: Any, text: str, kind: str) -> None:
    made = source(text)
    assert type(made).__name__ == kind
    assert made.name == text
    made.close()


def test_a_static_count_is_never_read_again() -> None:
    assert source("static:1_000").read() == Reading(1_000, math.inf)


@pytest.mark.parametrize(("value", "count"), [("3", 3), (" 3\n", 3), ("0012", 12)])
def test_an_environment_variable(monkeypatch: pytest.MonkeyPatch, value: str, count: int) -> None:
    monkeypatch.setenv("SHOP_HOSTS", value)
    assert source("env:SHOP_HOSTS").read() == Reading(count, math.inf)


@pytest.mark.parametrize("value", ["", " ", "0", "-3", "3.0", "3 4", "1_000", "٣", "9" * 5000])
def test_what_is_no_count_in_an_environment_variable(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SHOP_HOSTS", value)
    assert fault("env:SHOP_HOSTS").startswith("$SHOP_HOSTS: ")


def test_an_environment_variable_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_HOSTS", raising=False)
    assert fault("env:SHOP_HOSTS").startswith("$SHOP_HOSTS: is not set; accepted: a whole number")


def test_a_callable_answers_an_int_and_is_read_again(fleet: Any) -> None:
    assert source("user_fleet:hosts").read() == Reading(3, 20.0)
    assert source("user_fleet:Group.hosts").read() == Reading(3, 20.0)
    fleet.answer = 5
    assert source("user_fleet:hosts").read().count == 5


@pytest.mark.parametrize(
    "answer",
    [
        0,
        -1,
        1.5,
        "3",
        True,
        None,
        10**7,
        pytest.param(10**5000, id="huge"),
        OSError("boom"),
        KeyError(),
    ],
)
def test_a_callable_that_answers_nonsense_or_raises_is_a_failed_reading(
    fleet: Any, answer: Any
) -> None:
    fleet.answer = answer
    assert fault("user_fleet:hosts").startswith("user_fleet:hosts: ")


def test_a_failure_of_the_users_own_goes_through_as_it_is(fleet: Any) -> None:
    fleet.answer = SourceFailed("fleet: no answer; accepted: one")
    assert fault("user_fleet:hosts") == "fleet: no answer; accepted: one"


def test_a_source_of_the_users_own_as_class_or_object(fleet: Any) -> None:
    for closed, text in enumerate(["user_fleet:Fleet", "user_fleet:fleet"], 1):
        fleet.answer = Reading(4, 7.0)
        made = source(text)
        assert made.read() == Reading(4, 7.0)
        told: list[int] = []
        made.watch(lambda: told.append(1))  # noqa: B023
        assert told == [1]
        made.close()
        assert fleet.Fleet.closed == closed


@pytest.mark.parametrize(
    "answer",
    [3, None, Reading(0, 5.0), Reading(3, 0.0), Reading(3, -1.0), Reading(3, math.nan)],
)
def test_readings_of_the_users_own_are_checked(fleet: Any, answer: Any) -> None:
    fleet.answer = answer
    assert fault("user_fleet:Fleet").startswith("user_fleet:Fleet: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no_such_module:hosts", "importing no_such_module raised ModuleNotFoundError"),
        ("user_broken:hosts", "importing user_broken raised RuntimeError"),
        ("user_fleet:hots", "has no 'hots'; accepted: a callable without arguments"),
        ("user_fleet:Group.none", "has no 'none'"),
        ("user_fleet:number", "is 7; accepted: a callable without arguments"),
        ("user_fleet:Broken", "making it raised OSError"),
    ],
)
def test_import_paths_that_lead_nowhere(fleet: Any, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as failure:
        source(text)
    assert str(failure.value).startswith(f"source: {text!r}: ")
    assert words in str(failure.value)


def test_an_imported_source_says_what_it_is_given_without_a_configuration(fleet: Any) -> None:
    assert ImportedSource("user_fleet:hosts", 3.0).read() == Reading(3, 3.0)


def test_a_source_needs_only_to_read() -> None:
    class Two(HostSource):
        def read(self) -> Reading:
            return Reading(2, 60)

    two = Two()
    two.watch(lambda: None)
    two.close()
    assert two.read().count == 2
    with pytest.raises(TypeError):
        HostSource()  # type: ignore[abstract]


def test_neither_watchdog_nor_dnspython_is_imported_before_a_source_needs_it() -> None:
    code = """
import os, sys
import shmlimit, shmlimit.config, shmlimit.cli, shmlimit.hosts.count, shmlimit.hosts.file
from shmlimit.hosts.scheme import source_of
from shmlimit.hosts.settings import HostsConfig
os.environ["HOSTS"] = "3"
source_of(HostsConfig()).read()
source_of(HostsConfig("env:HOSTS", 1)).read()
HostsConfig("dns:web", 1)
def loaded():
    return {name.split(".")[0] for name in sys.modules} & {"watchdog", "dns"}
assert loaded() == set(), loaded()
source_of(HostsConfig("dns:web", 1))
assert loaded() == {"dns"}, loaded()
source_of(HostsConfig("file:/nowhere", 1)).watch(print)
assert loaded() == {"dns", "watchdog"}, loaded()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
