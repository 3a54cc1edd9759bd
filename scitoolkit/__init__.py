"""scitoolkit: train surrogates on simulation data, search architectures, compress output."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import public_dir

if TYPE_CHECKING:
    from scitoolkit.api import bench_training as bench_training
    from scitoolkit.api import check as check
    from scitoolkit.api import evaluate as evaluate
    from scitoolkit.api import export as export
    from scitoolkit.api import generate as generate
    from scitoolkit.api import load as load
    from scitoolkit.api import load_surrogate as load_surrogate
    from scitoolkit.api import predict as predict
    from scitoolkit.api import publish as publish
    from scitoolkit.api import publish_to as publish_to
    from scitoolkit.api import report as report
    from scitoolkit.api import run as run
    from scitoolkit.api import run_search as run_search
    from scitoolkit.api import schema as schema
    from scitoolkit.api import train as train
    from scitoolkit.api import validate as validate
    from scitoolkit.compression import compress as compress
    from scitoolkit.compression import decompress as decompress
    from scitoolkit.core.content import dataset_path as dataset_path
    from scitoolkit.io.campaign.open import open_campaign as open_campaign
    from scitoolkit.io.fields import open_fields as open_fields

__version__ = "0.2.0"

# The public functions live in modules that import torch; they are loaded when first used, so that
# `import scitoolkit` and `scitoolkit --help` stay fast.
_LAZY = {
    "compress": "scitoolkit.compression",
    "dataset_path": "scitoolkit.core.content",
    "decompress": "scitoolkit.compression",
    "open_campaign": "scitoolkit.io.campaign.open",
    "open_fields": "scitoolkit.io.fields",
}
__all__ = [
    "__version__",
    "bench_training",
    "check",
    "compress",
    "dataset_path",
    "decompress",
    "evaluate",
    "export",
    "generate",
    "load",
    "load_surrogate",
    "open_campaign",
    "open_fields",
    "predict",
    "publish",
    "publish_to",
    "report",
    "run",
    "run_search",
    "schema",
    "train",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Import a public function on first use."""
    if name in __all__:
        return getattr(importlib.import_module(_LAZY.get(name, "scitoolkit.api")), name)
    raise AttributeError(f"module 'scitoolkit' has no attribute {name!r}")


__dir__: Callable[[], list[str]] = public_dir(globals())
