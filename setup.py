"""Builds the one extension module, shmlimit._core, from pyx/.

SHMLIMIT_BUILD chooses the kind of build, words joined by commas:

    (empty)     the product: optimised, no sync points
    debug       -O0 -g and C assertions
    sanitize    address and undefined-behaviour sanitizers
    sync        sync points compiled in (pyx/syncpoints.h), each yields the processor at random
    builtins    atomics from compiler builtins instead of inline assembly
"""

import os
import platform
import shlex
import shutil
import sysconfig
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

KINDS = {
    "debug": (["-O0", "-g3", "-UNDEBUG"], []),
    "sanitize": (["-O1", "-g", "-fsanitize=address,undefined"], ["-fsanitize=address,undefined"]),
    "sync": (["-DSHMLIMIT_SYNC_POINTS"], []),
    "builtins": (["-DSHMLIMIT_BUILTIN_ATOMICS"], []),
}

chosen = [word for word in os.environ.get("SHMLIMIT_BUILD", "").split(",") if word]
unknown = [word for word in chosen if word not in KINDS]
if unknown:
    raise SystemExit(f"SHMLIMIT_BUILD: {unknown} unknown; accepted: {', '.join(KINDS)}")

compile_args = ["-std=gnu11", "-O3", "-g0", "-Wall", "-Wextra", "-Wno-unused-parameter"]
link_args: list[str] = []
if platform.machine() in ("x86_64", "AMD64"):
    compile_args.append("-mcx16")
for word in chosen:
    compile_args += KINDS[word][0]
    link_args += KINDS[word][1]

compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
if shutil.which(compiler) is None:
    raise SystemExit(
        f"shmlimit needs a C compiler, and {compiler} is not found: install one (Debian: apt "
        f"install gcc), or name one in CC"
    )

core = Extension(
    "shmlimit._core",
    sources=["pyx/_core.pyx"],
    include_dirs=["pyx"],
    depends=sorted(glob("pyx/*.h") + glob("pyx/*.pxd") + glob("pyx/*.pxi")),
    extra_compile_args=compile_args,
    extra_link_args=link_args,
)

setup(
    ext_modules=cythonize(
        [core],
        include_path=["pyx"],
        build_dir="build/cython",
        compiler_directives={"language_level": 3, "embedsignature": True},
    )
)
