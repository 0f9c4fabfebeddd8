"""Where shmlimit.toml is looked for, and files that are missing, closed or no files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shmlimit.config import ENVIRONMENT_VARIABLE, Config
from shmlimit.errors import ConfigError

GOOD = '[table]\nname = "shop"\n[limits.per_ip]\nrate = "100/s"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, and nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    return tmp_path


def test_found_by_argument_then_environment_then_here(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("argument.toml", "environment.toml", "shmlimit.toml"):
        (here / name).write_text(GOOD)
    assert Config.find() == here / "shmlimit.toml"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "environment.toml")
    assert Config.find() == here / "environment.toml"
    assert Config.find("argument.toml") == here / "argument.toml"
    assert Config.find(Path("argument.toml")) == here / "argument.toml"
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "")
    assert Config.find() == here / "shmlimit.toml"


def test_a_missing_file_is_not_replaced_by_the_next(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError) as refusal:
        Config.find()
    assert str(refusal.value) == (
        f"{here}/shmlimit.toml: there is no such file (looked at: $SHMLIMIT_CONFIG (not set), then "
        './shmlimit.toml); create it with a [table] with name = "shop", and for each limit a '
        '[limits.NAME] with rate = "100/s", or name another file in $SHMLIMIT_CONFIG'
    )
    (here / "shmlimit.toml").write_text(GOOD)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "gone/x.toml")
    with pytest.raises(ConfigError, match=r"gone/x\.toml: .* \(looked at: \$SHMLIMIT_CONFIG\)"):
        Config.find()
    with pytest.raises(ConfigError, match=r"y\.toml: there is .* \(looked at: the path given\)"):
        Config.find("y.toml")
    with pytest.raises(ConfigError, match=r"shmlimit\.toml/y: there is no such file"):
        Config.find("shmlimit.toml/y")
    with pytest.raises(ConfigError, match=r"y\.toml: there is no such file; create it"):
        Config.load("y.toml")


def test_the_path_is_absolute_and_keeps_its_links(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "real").mkdir()
    (here / "real" / "shmlimit.toml").write_text(GOOD)
    (here / "data").symlink_to("real")
    config = Config.load("data/shmlimit.toml")
    assert config.path == here / "data" / "shmlimit.toml"
    monkeypatch.chdir("/")
    assert Config.load(config.path) == config


@pytest.mark.parametrize("path", ["", "x\0y"])
def test_paths_that_name_nothing(here: Path, path: str) -> None:
    for look in (Config.find, Config.load):
        with pytest.raises(ConfigError, match="names no file; accepted: the path of a TOML file"):
            look(path)


@pytest.mark.parametrize("path", [b"x", 3, 1.5, ["x"]])
def test_paths_are_text(here: Path, path: object) -> None:
    for look in (Config.find, Config.load):
        with pytest.raises(TypeError):
            look(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["caf\udce9\n.toml", "\ud800.toml", "x" * 300])
def test_names_that_are_no_text(here: Path, name: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Config.load(name)
    assert str(refusal.value).isprintable()
    with pytest.raises(ConfigError):
        Config.load(Config.find(name))


def test_the_current_directory_is_gone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    (here / "gone").rmdir()
    with pytest.raises(ConfigError, match=r"current directory cannot be read .* an absolute path"):
        Config.find()


def test_what_is_no_regular_file(here: Path) -> None:
    (here / "directory").mkdir()
    os.mkfifo(here / "fifo")
    with pytest.raises(ConfigError, match="directory: is a directory; accepted: a TOML file"):
        Config.load(Config.find("directory"))
    with pytest.raises(ConfigError, match="fifo: is no regular file; accepted: a TOML file"):
        Config.load(Config.find("fifo"))  # and does not wait for a writer
    with pytest.raises(ConfigError, match="null: is no regular file; accepted: a TOML file"):
        Config.load("/dev/null")


def test_links_that_lead_nowhere(here: Path) -> None:
    (here / "dangling").symlink_to("nothing")
    (here / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match="dangling: there is no such file"):
        Config.find("dangling")
    with pytest.raises(ConfigError, match="loop: cannot be read: Too many levels"):
        Config.load(Config.find("loop"))


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A directory that anyone may enter; root, to whom no file is closed, acts as another user."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield directory
    finally:
        os.seteuid(user)
        shutil.rmtree(directory)


def test_a_file_that_may_not_be_read(as_nobody: Path) -> None:
    user, nobody = os.getuid(), os.geteuid()
    os.seteuid(user)
    (as_nobody / "shmlimit.toml").write_text(GOOD)
    (as_nobody / "shmlimit.toml").chmod(0)
    os.seteuid(nobody)
    expected = f"may not be read by user id {nobody}; make the file readable"
    with pytest.raises(ConfigError, match=expected):
        Config.load(Config.find(as_nobody / "shmlimit.toml"))
