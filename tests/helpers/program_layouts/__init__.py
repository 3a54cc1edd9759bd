"""Small data sets in the layouts of well-known programs, with the values that were written.

For tests of whatever reads files: `write_layout(name, folder)` writes a few files as the program of
that name does, with its names of dims, attributes, storage and coordinates, and returns what a
reader has to make of them. Sizes and values are drawn from the seed. Sources: sample output and
manuals of the programs named; CF Conventions 1.12; the Well, PDEBench and openPMD specifications.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from program_layouts.cf import CF_LAYOUTS
from program_layouts.files import LayoutFiles as LayoutFiles
from program_layouts.files import Write
from program_layouts.packages import installed
from program_layouts.solvers import SOLVER_LAYOUTS
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name


def layout_names() -> list[str]:
    """Return the names of all layouts, of those of a package if it is installed.

    Example:
        >>> "wrf" in layout_names()
        True
    """
    return list(_all())


def write_layout(name: str, folder: Path, seed: int = 0) -> LayoutFiles:
    """Write the files of a layout.

    Args:
        name: one of `layout_names`.
        folder: an empty folder that exists.
        seed: of sizes and values.

    Raises:
        ConfigError: no such layout.

    Example:
        >>> import tempfile
        >>> files = write_layout("nemo", Path(tempfile.mkdtemp()))
        >>> files.path.name, list(files.truth)
        ('run0.nc', ['thetao', 'so'])
    """
    layouts = _all()
    if name not in layouts:
        near = nearest_name(name, list(layouts))
        raise ConfigError(
            f"no layout {name!r}",
            allowed=", ".join(layouts),
            fix=f"did you mean {near}?" if near else "",
        )
    return layouts[name](folder, np.random.default_rng(seed))


def _all() -> dict[str, Write]:
    return {**CF_LAYOUTS, **SOLVER_LAYOUTS, **installed()}
