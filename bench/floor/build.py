"""Compiles floor.pyx with the product's own flags against the product's own headers."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import sysconfig
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parent.parent.parent
SOURCE = Path("bench/floor/floor.pyx")  # below ROOT, as setup.py's paths are
BUILD = ROOT / "build" / "bench"


def floor_directory() -> Path:
    """The directory that holds the compiled floor."""
    with contextlib.chdir(ROOT):  # setup.py and what it names are relative to the root
        product = _product_extension()
        directory = BUILD / f"floor-{_digest(product)}"
        if not any(directory.glob("floor.*.so")):
            _compile(product, directory)
    return directory


def _product_extension() -> Any:
    """shmlimit._core as setup.py builds it: its flags are the ones to compile with."""
    importlib.import_module("setuptools")  # provides distutils where Python no longer does
    run_setup = importlib.import_module("distutils.core").run_setup
    with mock.patch("Cython.Build.cythonize", lambda extensions, **_: extensions):
        setup = run_setup("setup.py", stop_after="init")  # told, and nothing built
    (product,) = setup.ext_modules
    return product


def _digest(product: Any) -> str:
    digest = hashlib.sha256(sysconfig.get_platform().encode())
    digest.update(repr((product.extra_compile_args, os.environ.get("CFLAGS"))).encode())
    digest.update(repr(sysconfig.get_config_vars("SOABI", "CC", "CFLAGS")).encode())
    for source in [SOURCE, *sorted(Path("pyx").glob("*.h")), *sorted(Path("pyx").glob("*.pxd"))]:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(product: Any, directory: Path) -> None:
    """Builds aside and renames: a build that is killed leaves nothing that looks finished."""
    made = directory.with_suffix(f".{os.getpid()}")
    setuptools = importlib.import_module("setuptools")
    extension = setuptools.Extension(
        "floor",
        [str(SOURCE)],
        include_dirs=product.include_dirs,
        extra_compile_args=product.extra_compile_args,
        extra_link_args=product.extra_link_args,
    )
    cythonized = importlib.import_module("Cython.Build").cythonize(
        [extension],
        include_path=["pyx"],
        build_dir=str(made),
        compiler_directives={"language_level": 3},
        force=True,
        quiet=True,
    )
    command = setuptools.Distribution({"ext_modules": cythonized}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(made), str(made / "objects")
    command.ensure_finalized()
    command.run()
    with contextlib.suppress(OSError):  # another process was faster with the same build
        made.rename(directory)
