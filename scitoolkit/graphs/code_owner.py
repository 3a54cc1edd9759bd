"""Whether code is of a user, of this package, or of the libraries that it is built on."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from types import CodeType

_PACKAGE = str(Path(__file__).resolve().parents[1])
_OTHERS = (str(Path(os.__file__).parent), "<")


@functools.cache
def code_owner(code: CodeType) -> str:
    """Return `package` for code of this package, `library` for torch and Python, else `user`."""
    name = code.co_filename
    if name.startswith(_PACKAGE):
        return "package"
    parts = Path(name).parts
    # Torch-geometric writes the code of its layers to files of such names.
    library = "torch" in parts or any(part.startswith("torch_geometric") for part in parts)
    inside = name.startswith(_OTHERS) and "site-packages" not in parts
    return "library" if library or inside else "user"
