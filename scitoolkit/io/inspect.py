"""Description of a file's variables, their roles and their storage layout, without reading values.

The layout determines how fast training reads: a contiguous variable can be read at any position, a
compressed one only in whole chunks.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.content import shipped_path
from scitoolkit.core.errors import DataError, ScitoolkitError
from scitoolkit.io.advice import training_reads
from scitoolkit.io.campaign.headers import read_header
from scitoolkit.io.campaign.told import arrays_without_numbers, roles_of_file
from scitoolkit.io.coordinates import READ_ERRORS
from scitoolkit.io.formats.base import Format, StoredVariable, format_of, unreadable


def describe(path: Path | str) -> dict[str, Any]:
    """Return the format, size, variables and roles of a file as plain data.

    `roles` gives the role of each variable and why (`because`), `dims` those of the dims of fields,
    `others` the names of arrays that hold no numbers, such as text. Where the roles cannot be told,
    `remark` says why.

    Args:
        path: a file or store of any installed format.

    Raises:
        DataError: the file is missing, damaged or in an unknown format.
    """
    path = shipped_path(path)
    if not path.exists():
        raise DataError("no such file", where=str(path))
    format_class = format_of(path)
    try:
        variables = format_class.variables(path)
    except ScitoolkitError:
        raise
    except READ_ERRORS as error:
        raise unreadable(path, error) from None
    return {**_described(format_class, path, variables), **roles_in(path)}


def bytes_of(path: Path) -> int:
    """Return the size of a file, or the total size of the files in a folder, in bytes."""
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size


def roles_in(path: Path) -> dict[str, Any]:
    """Return the roles of a file's variables and dims, and the names of what holds no numbers.

    None for formats without names of dims, such as .npz, which have no attributes either.
    """
    nothing: dict[str, Any] = {"roles": {}, "dims": {}, "others": [], "remark": ""}
    if format_of(path).unnamed_dims:
        return nothing
    try:
        header = read_header(path)
    except DataError as error:
        return {**nothing, "remark": str(error)}
    roles, dims = roles_of_file(header)
    return {
        "roles": {name: asdict(told) for name, told in roles.items()},
        "dims": {name: asdict(told) for name, told in dims.items()},
        "others": arrays_without_numbers(header),
        "remark": "",
    }


def _described(kind: type[Format], path: Path, variables: list[StoredVariable]) -> dict[str, Any]:
    return {
        "path": str(path),
        "format": kind.name,
        "bytes": bytes_of(path),
        "variables": [
            {
                **asdict(v),
                "bytes": v.nbytes,
                "training": training_reads(
                    v.shape,
                    np.dtype(v.dtype).itemsize,
                    v.chunks,
                    bool(v.filters) or kind.whole_chunks,
                ),
            }
            for v in variables
        ],
    }
