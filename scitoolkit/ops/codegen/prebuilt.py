"""Prebuilt kernels: libraries that a platform wheel brings for machines that cannot compile.

`PREBUILT` holds one folder a processor level, named as compilers name it (`-march=x86-64-v3`), and
in it libraries under the digest of their source and flags. A kernel is compiled for the machine at
hand where a compiler works; only where none does is the library of the best level taken that the
processor has. The folder is part of the installed package, hence trusted like its Python code.

A library names no OpenMP runtime: it uses the one that torch brings, so that a process has one pool
of threads, and a machine needs no package of the system.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from scitoolkit.core.run_directory import write_atomic

PREBUILT = Path(__file__).with_name("_prebuilt")
# Folder to which every C source that is asked for is written, with its flags: prebuild_kernels.py.
SOURCES = "SCITOOLKIT_KERNEL_SOURCES"
# Raise when a library of the same source and flags would have another interface.
VERSION = 1
# Processor levels of an architecture, best first, with what /proc/cpuinfo has to name for each.
LEVELS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "x86_64": {
        "x86-64-v3": frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}),
        "x86-64-v2": frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    },
    "aarch64": {"armv8-a": frozenset()},
    "arm64": {"armv8-a": frozenset()},
}
RUNTIMES = ("libgomp", "libomp", "libiomp5")


def levels() -> Mapping[str, frozenset[str]]:
    """Return the processor levels of this architecture, best first; none for an unknown one."""
    return LEVELS.get(platform.machine(), {})


@functools.cache
def usable_levels() -> tuple[str, ...]:
    """Return the levels whose libraries this processor can run, best first.

    Example:
        >>> set(usable_levels()) <= set(levels())
        True
    """
    has = _processor_flags()
    return tuple(name for name, needed in levels().items() if needed <= has)


def _processor_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux: only levels that need nothing
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), ":")
    return frozenset(flags.partition(":")[2].split())


def digest(source: str, flags: tuple[str, ...]) -> str:
    """Return the name under which a source's library is stored, without its suffix.

    Args:
        source: C source.
        flags: those for the machine at hand, as `load_library` takes them.
    """
    return hashlib.sha256("\0".join((source, *flags, str(VERSION))).encode()).hexdigest()[:32]


def find(source: str, flags: tuple[str, ...]) -> Path | None:
    """Return the prebuilt library of a source for this processor, None where there is none."""
    name = f"{digest(source, flags)}.so"
    paths = (PREBUILT / level / name for level in usable_levels())
    return next((path for path in paths if path.is_file()), None)


def num_usable() -> int:
    """Return the number of libraries that this processor can run.

    Example:
        >>> num_usable() >= 0
        True
    """
    return len({path.name for level in usable_levels() for path in (PREBUILT / level).glob("*.so")})


@functools.cache
def share_openmp() -> None:
    """Make torch's OpenMP runtime, or else the system's, visible to libraries that name none."""
    import torch  # loads its runtime

    beside = sorted((Path(torch.__file__).parent / "lib").glob("lib*omp*"))
    paths = [*_loaded(), *map(str, beside), *filter(None, [ctypes.util.find_library("gomp")])]
    for path in paths:
        try:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        return


def _loaded() -> list[str]:
    """Return the paths of the OpenMP runtimes that this process has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/" in line}
    return sorted(path for path in paths if Path(path).name.startswith(RUNTIMES))


def noting() -> bool:
    """Return whether sources are written down: then each has to be made, also of cached kernels."""
    return bool(os.environ.get(SOURCES))


def note_source(source: str, flags: tuple[str, ...]) -> None:
    """Write a source with its flags to the folder that $SCITOOLKIT_KERNEL_SOURCES names, if any."""
    if noting():
        folder = Path(os.environ[SOURCES])
        folder.mkdir(parents=True, exist_ok=True)
        text = f"// {' '.join(flags)}\n{source}"
        write_atomic(folder / f"{digest(source, flags)}.c", text)


def read_note(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return source and flags as `note_source` wrote them."""
    head, _, source = path.read_text(encoding="utf-8").partition("\n")
    return source, tuple(head.removeprefix("// ").split())
