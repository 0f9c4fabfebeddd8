"""Builds and runs the C rigs of tests/rig/, small programs over the product's own headers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "tests" / "rig"
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")


def build(rig: str, *flags: str) -> Path:
    """The program of that rig built with those flags, from a cache that knows every source."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    command = [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    command += ["-Wno-unused-parameter", f"-I{ROOT / 'pyx'}", *flags]
    if os.uname().machine == "x86_64":
        command.append("-mcx16")
    digest = hashlib.sha256(" ".join(command).encode())
    for source in sorted([*SOURCES.iterdir(), *(ROOT / "pyx").glob("*.h")]):
        digest.update(source.read_bytes())
    program = ROOT / "build" / "rigs" / f"{rig}-{digest.hexdigest()[:16]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        made = program.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, str(SOURCES / f"{rig}.c"), "-o", str(made)], check=True)
        made.replace(program)
    return program


def run(program: Path, *arguments: int) -> dict[str, int]:
    """What the rig printed, by name. The rig ends by itself; the timeout is for a broken one."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    print(" ".join(command), done.stdout, sep="\n")
    return {name: int(value) for name, value in (line.split() for line in done.stdout.splitlines())}
