"""A report: what was measured, on which machine, and every run, as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any


def cpu_model() -> str:
    """The processor's name; on machines whose /proc/cpuinfo has none, the architecture."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def compiler() -> str:
    """The C compiler that builds extensions here and its major version, such as gcc-12."""
    command = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[:1]
    shown = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    version = subprocess.run([*command, "-dumpversion"], capture_output=True, text=True, check=True)
    kind = "clang" if "clang" in shown.stdout else "gcc"
    return f"{kind}-{version.stdout.strip().partition('.')[0]}"


def python() -> str:
    """The interpreter and its minor version, such as cpython-3.11."""
    return f"{sys.implementation.name}-{sys.version_info.major}.{sys.version_info.minor}"


def machine() -> dict[str, str | int]:
    """The kind of machine: what a reader needs to judge the figures, and no name of it."""
    return {
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "kernel": platform.release().partition("-")[0],
        "python": platform.python_version(),
        "compiler": compiler(),
    }


def write(path: Path | None, results: dict[str, Any]) -> None:
    """Writes the results with the machine beside them; does nothing without a path."""
    if path is not None:
        report = {"machine": machine(), "made_unix_s": int(time.time()), **results}
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
