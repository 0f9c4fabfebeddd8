"""The other builds of the extension (setup.py): each is made, and passes tests that suit it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]

BUILDS = {
    "debug": ("test_keys.py", "test_limiter_model.py"),
    "sanitize": ("test_keys.py", "test_when_full.py", "test_check.py"),
    # every sync point may yield the processor, or be the last one
    "sync": ("test_exact.py", "test_kills.py", "test_publisher_kills.py"),
    "builtins": ("test_exact.py", "test_keys.py"),
}


def build(kind: str, into: Path) -> None:
    """The package and its tests in `into`, with the extension of that kind."""
    command = [sys.executable, "setup.py", "-q", "build"]
    command += ["--build-lib", str(into), "--build-temp", str(into / "objects")]
    environment = {**os.environ, "SHMLIMIT_BUILD": kind}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.copytree(ROOT / "tests", into / "tests")
    shutil.copy(ROOT / "pyproject.toml", into)


def preloaded() -> dict[str, str]:
    """The environment in which an uninstrumented Python loads a sanitized extension."""
    libraries = [
        subprocess.check_output([COMPILER, f"-print-file-name={name}"], text=True).strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    return {
        "LD_PRELOAD": ":".join(libraries),
        "PYTHONMALLOC": "malloc",  # so that the sanitizer sees Python's objects
        "ASAN_OPTIONS": "detect_leaks=0",  # Python leaves some memory to the end of the process
        "UBSAN_OPTIONS": "halt_on_error=1",
    }


@pytest.mark.parametrize("kind", BUILDS)
def test_each_build_passes(kind: str, tmp_path: Path) -> None:
    build(kind, tmp_path)
    files = [f"tests/{name}" for name in BUILDS[kind]]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = {**os.environ, "SHMLIMIT_BUILD": kind}
    environment |= preloaded() if kind == "sanitize" else {}
    done = subprocess.run(
        [*command, *files], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


def test_an_unknown_build_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=ROOT,
        env={**os.environ, "SHMLIMIT_BUILD": "debug,fast"},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "'fast'" in done.stderr
    assert "debug, sanitize, sync, builtins" in done.stderr
