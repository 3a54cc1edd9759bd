"""Build of the HDF5 filter plug-in from the C source.

The library does not link to HDF5. HDF5 1.10 or newer finds it through HDF5_PLUGIN_PATH or
`h5py.h5pl.prepend`, so that h5dump, h5repack, netCDF and h5py can read and write such datasets.
"""

from __future__ import annotations

import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.compression.native.library import EXTENDED, ChunkExtras, source
from scitoolkit.core.errors import BackendError
from scitoolkit.io.compressed import FILTER_ID
from scitoolkit.ops.codegen import prebuilt
from scitoolkit.ops.codegen.compile import find_compiler, read

LIBRARY = "libscitoolkit_codec.so"
# Without -march=native, because nodes with different processors may share the folder.
FLAGS = (
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-w",
)


def plugin_source() -> str:
    """Return the complete C source of the filter.

    Example:
        >>> "H5PLget_plugin_info" in plugin_source()
        True
    """
    return source() + read(__file__, "hdf5_filter.c")


def filter_options(
    bound: float, extras: ChunkExtras | None = None, dtype: Any = "f4"
) -> dict[str, Any]:
    """Return arguments of `h5py.Group.create_dataset` that apply the filter with a bound.

    Args:
        bound: absolute, in the unit of the data, unless the extras say otherwise.
        extras: relative bound, further fill values, enhancer.
        dtype: of the data, which the extras' fill values need.

    Example:
        >>> filter_options(1e-3)["compression"]
        33793
    """
    words = struct.unpack("<II", struct.pack("<d", bound))
    if tail := (extras or ChunkExtras()).words(np.dtype(dtype)):
        words = (EXTENDED, 0, *words, 0, 0, 0, *tail)
    return {"compression": FILTER_ID, "compression_opts": words}


def install(directory: Path | str, *, flags: tuple[str, ...] = FLAGS) -> Path:
    """Build the filter, or copy a prebuilt one, into a folder; return the path of the library.

    Args:
        directory: created if necessary.
        flags: of the C compiler.

    Raises:
        BackendError: there is no compiler, it fails, or the folder cannot be written.
    """
    try:
        return write(Path(directory), flags=flags)
    except OSError as error:
        raise BackendError(
            f"the filter cannot be written: {error}",
            where=str(directory),
            fix="choose a writable folder with some MB of free space",
        ) from error


def write(folder: Path, *, flags: tuple[str, ...] = FLAGS) -> Path:
    """Build the filter and move it into a folder; return its path.

    `install` without the translation of errors: callers choose another folder on OSError.

    Raises:
        BackendError: there is no compiler, or it fails.
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
        built = _build(Path(scratch), flags)
        os.replace(built, folder / LIBRARY)
    return folder / LIBRARY


def _build(scratch: Path, flags: tuple[str, ...]) -> Path:
    code, built, text = scratch / "codec.c", scratch / LIBRARY, plugin_source()
    prebuilt.note_source(text, flags)
    try:
        compiler = find_compiler()
    except BackendError:
        library_file = prebuilt.find(text, flags)
        if library_file is None:
            raise
        shutil.copyfile(library_file, built)
        return built
    code.write_text(text, encoding="utf-8")
    command = [*shlex.split(compiler), *flags, str(code), "-o", str(built), "-lm", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not built.exists():
        raise BackendError(
            f"the C compiler could not build the filter: {done.stderr.strip()[-300:]}",
            fix="set CC to gcc >= 9 or clang >= 12",
        )
    return built
