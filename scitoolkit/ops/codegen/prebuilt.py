"""Prebuilt kernels: libraries in a platform wheel for machines without a working C compiler.

`PREBUILT` has one folder per processor level, named as in `-march=x86-64-v3`; libraries in it are
named by the digest of their source and flags. With a working compiler kernels are compiled for the
local machine, with the flags in $SCITOOLKIT_CFLAGS. Otherwise the library of the highest level that
the processor supports is loaded. The folder is part of the installed package and is trusted like
its Python code. A wheel has it as one archive, since libraries that resemble each other compress
best together; it is unpacked beside the cache of kernels when it is first needed. A library is
loaded only if its bytes have the digest in `DIGESTS`, which stays in the package.

A library is not linked to an OpenMP runtime and uses that of torch. A process then has one pool of
threads, and no system package is needed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import lzma
import os
import platform
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

from scitoolkit.core.errors import BackendError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.unpacking import unpack
from scitoolkit.ops.codegen.cache import cache_directory, distrust, fallback_directory

PREBUILT = Path(__file__).with_name("_prebuilt")
REINSTALL = "pip install --force-reinstall --no-deps FILE, the wheel that was installed"
ARCHIVE = "libraries.tar.xz"
"""File in `PREBUILT` with its other contents."""
DIGESTS = "libraries.sha256"
"""File in `PREBUILT` with the digest of each library, in the format of `sha256sum`."""
_MEMBER = re.compile(r"[\w.-]+/[0-9a-f]{32}\.so")
# Variable that names the folder to which every requested C source is written with its flags, for
# prebuild_kernels.py and for reading.
SOURCES = "SCITOOLKIT_KERNEL_SOURCES"
# Part of the digest. Increment when the interface of libraries of unchanged sources changes.
VERSION = 1
# Processor levels of an architecture, highest first, with the flags required in /proc/cpuinfo.
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
    """Return the processor levels of this architecture, highest first; empty if unknown."""
    return LEVELS.get(platform.machine(), {})


@functools.cache
def usable_levels() -> tuple[str, ...]:
    """Return the levels whose libraries this processor can run, highest first.

    Example:
        >>> set(usable_levels()) <= set(levels())
        True
    """
    has = _processor_flags()
    return tuple(name for name, needed in levels().items() if needed <= has)


def _processor_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux: only levels without required flags
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), ":")
    return frozenset(flags.partition(":")[2].split())


def digest(source: str, flags: tuple[str, ...]) -> str:
    """Return the name under which a source's library is stored, without its suffix.

    Args:
        source: C source.
        flags: flags for the local machine, as for `load_library`.
    """
    return hashlib.sha256("\0".join((source, *flags, str(VERSION))).encode()).hexdigest()[:32]


def folder() -> Path:
    """Return the folder with a folder of libraries for each level, unpacked if necessary.

    Raises:
        BackendError: the archive is damaged, or there is no private folder to unpack it into.
    """
    archive = PREBUILT / ARCHIVE
    return _unpacked(archive) if archive.is_file() else PREBUILT


@functools.cache
def _unpacked(archive: Path) -> Path:
    name = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    reasons = []
    for parent in (cache_directory().parent, fallback_directory().parent):
        place = parent / "prebuilt" / name
        try:
            if not place.is_dir():
                _unpack(archive, place)
            reason = distrust(place.stat()) or distrust(place.parent.stat())
        except OSError as error:
            reason = str(error)
        if not reason:
            return place
        reasons.append(f"{place}: {reason}")
    raise BackendError(
        "prebuilt kernels cannot be unpacked",
        where="; ".join(reasons),
        fix="set SCITOOLKIT_CACHE to a folder that only you may write",
    )


def _unpack(archive: Path, place: Path) -> None:
    try:
        unpack(archive, place, _MEMBER)
    except (tarfile.TarError, EOFError, lzma.LZMAError) as error:
        raise BackendError(
            f"damaged archive of prebuilt kernels ({error})",
            where=str(archive),
            fix=REINSTALL,
        ) from None


def find(source: str, flags: tuple[str, ...]) -> Path | None:
    """Return the prebuilt library of a source for this processor, or None.

    Raises:
        BackendError: its bytes are not those that the package was built with; also see `folder`.
    """
    name = f"{digest(source, flags)}.so"
    root = folder()
    paths = (root / level / name for level in usable_levels())
    path = next((path for path in paths if path.is_file()), None)
    if path is not None and _line(path) not in _stored_lines():
        unpacked = root != PREBUILT
        raise BackendError(
            "a prebuilt kernel is damaged: its bytes have not the digest stored in the package",
            where=str(path),
            fix=f"rm -r {root}" if unpacked else REINSTALL,
        )
    return path


def write_digests() -> None:
    """Write the digests of all libraries in `PREBUILT`, which has to be done after building."""
    lines = map(_line, sorted(PREBUILT.glob("*/*.so")))
    write_atomic(PREBUILT / DIGESTS, "\n".join([*lines, ""]))


def _line(path: Path) -> str:
    """Return the line of a library in `DIGESTS`: the digest of its bytes, its level and name."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.parent.name}/{path.name}"


def _stored_lines() -> list[str]:
    """Return the lines that `write_digests` wrote; none without the file."""
    file = PREBUILT / DIGESTS
    return file.read_text(encoding="utf-8").splitlines() if file.is_file() else []


def num_usable() -> int:
    """Return the number of prebuilt libraries that this processor can run.

    Example:
        >>> num_usable() >= 0
        True
    """
    root = folder()
    return len({path.name for level in usable_levels() for path in (root / level).glob("*.so")})


@functools.cache
def share_openmp() -> None:
    """Load torch's OpenMP runtime, or else the system's, with global symbols for the libraries."""
    import torch  # loads its runtime

    bundled = sorted((Path(torch.__file__).parent / "lib").glob("lib*omp*"))
    paths = [*_loaded(), *map(str, bundled), *filter(None, [ctypes.util.find_library("gomp")])]
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
    """Return whether sources are recorded; cached kernels must then generate theirs as well."""
    return bool(os.environ.get(SOURCES))


def note_source(source: str, flags: tuple[str, ...]) -> None:
    """Write a source with its flags to the folder $SCITOOLKIT_KERNEL_SOURCES, if set."""
    if noting():
        notes = Path(os.environ[SOURCES])
        notes.mkdir(parents=True, exist_ok=True)
        text = f"// {' '.join(flags)}\n{source}"
        write_atomic(notes / f"{digest(source, flags)}.c", text)


def read_note(path: Path) -> tuple[str, tuple[str, ...]]:
    """Read the source and flags written by `note_source`."""
    head, _, source = path.read_text(encoding="utf-8").partition("\n")
    return source, tuple(head.removeprefix("// ").split())
