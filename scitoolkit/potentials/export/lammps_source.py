"""A LAMMPS that was built by cmake from its sources, to compile the pair style against."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.potentials.export.pair_style import SIZES, Lammps

UNKNOWN = "(unknown)"  # LAMMPS' descriptor of sources that are no git repository
_ENTRY = re.compile(r"^([\w-]+):\w+=(.*)$", re.MULTILINE)
_DESCRIPTOR = re.compile(r'git_descriptor\(\)\s*{\s*return\s*"([^"]*)"')
_VERSION = re.compile(r'LAMMPS_VERSION\s+"([^"]*)"')


def find_lammps_source(source: Path, build: Path | None = None) -> Lammps:
    """Return the LAMMPS of a source tree that was built by cmake.

    Args:
        source: folder with `src` and `cmake`.
        build: folder in which cmake was run; by default `source/build`.

    Raises:
        ConfigError: a folder is none of LAMMPS.
        BackendError: LAMMPS was built without plugins, or its mpi.h is not found.
    """
    build = source / "build" if build is None else build
    headers = source / "src"
    if not (headers / "pair.h").is_file():
        raise ConfigError("no src/pair.h in this folder", where=str(source), fix="--source LAMMPS")
    cache = build / "CMakeCache.txt"
    tree, folder = shlex.quote(f"{source}/cmake"), shlex.quote(str(build))
    if not cache.is_file():
        raise ConfigError(
            "no CMakeCache.txt: LAMMPS was not built by cmake here",
            where=str(build),
            fix=f"cmake -S {tree} -B {folder} -D PKG_PLUGIN=on && cmake --build {folder}, "
            "or --build FOLDER",
        )
    # Paths in it are bytes of the file system, in any encoding.
    text = cache.read_text(encoding="utf-8", errors="surrogateescape")
    entries = dict(_ENTRY.findall(text))
    if not _is_on(entries.get("PKG_PLUGIN", "")):
        raise BackendError(
            "LAMMPS was built without the package PLUGIN",
            where=str(cache),
            fix=f"cmake -D PKG_PLUGIN=on {folder} && cmake --build {folder}",
        )
    sizes = entries.get("LAMMPS_SIZES", "smallbig").upper()
    if sizes not in SIZES.values():
        raise BackendError(
            f"LAMMPS_SIZES {sizes}", where=str(cache), allowed=", ".join(SIZES.values())
        )
    compiler = entries.get("CMAKE_CXX_COMPILER", "")
    return Lammps(
        headers, _mpi_folder(entries, headers, cache), _identity(source, build), sizes, compiler
    )


def _is_on(value: str) -> bool:
    return value.upper() in ("ON", "TRUE", "YES", "Y", "1")


def _mpi_folder(entries: dict[str, str], headers: Path, cache: Path) -> Path:
    """Return the folder of the mpi.h of the build: an MPI, or LAMMPS' stubs for one process."""
    if "BUILD_MPI" in entries and not _is_on(entries["BUILD_MPI"]):
        return headers / "STUBS"
    stated = (entries.get(key, "") for key in ("MPI_CXX_HEADER_DIR", "MPI_CXX_INCLUDE_PATH"))
    folders = [Path(part) for value in stated for part in value.split(";") if part]
    wrapper = entries.get("MPI_CXX_COMPILER", "")
    if wrapper and not wrapper.endswith("NOTFOUND"):
        folders.append(Path(wrapper).resolve().parent.parent / "include")
    for folder in folders:
        if (folder / "mpi.h").is_file():
            return folder
    raise BackendError(
        "mpi.h of this build not found",
        where=str(cache),
        fix="-D MPI_CXX_HEADER_DIR=FOLDER, in the cmake of LAMMPS",
    )


def _identity(source: Path, build: Path) -> str:
    """Return the git descriptor that LAMMPS reports, or its version without a repository."""
    file = build / "styles" / "lmpgitversion.h"
    if not file.is_file():
        raise BackendError(
            "no styles/lmpgitversion.h: this build has not been compiled",
            where=str(build),
            fix=f"cmake --build {shlex.quote(str(build))}",
        )
    stated = _DESCRIPTOR.search(file.read_text(encoding="utf-8"))
    if stated and stated[1] != UNKNOWN:
        return stated[1]
    version = _VERSION.search((source / "src" / "version.h").read_text(encoding="utf-8"))
    if not version:
        raise BackendError("no LAMMPS_VERSION in src/version.h", where=str(source))
    return version[1]
