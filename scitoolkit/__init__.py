"""scitoolkit: train surrogates on simulation data, search architectures, compress output."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# The public functions live in modules that import torch; they are loaded when first used, so that
# `import scitoolkit` and `scitoolkit --help` stay fast.
_LAZY = {
    "open_fields": "scitoolkit.io.fields",
    "run": "scitoolkit.api",
    "train": "scitoolkit.api",
    "evaluate": "scitoolkit.api",
    "predict": "scitoolkit.api",
    "report": "scitoolkit.api",
    "load_surrogate": "scitoolkit.api",
}
__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    """Import a public function on first use."""
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'scitoolkit' has no attribute {name!r}")
