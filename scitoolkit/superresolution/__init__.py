"""Continuous super-resolution of fields (MeshfreeFlowNet), with equations given as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.superresolution.checking import CheckReport as CheckReport
    from scitoolkit.superresolution.checking import check as check
    from scitoolkit.superresolution.config import SuperresolutionConfig as SuperresolutionConfig
    from scitoolkit.superresolution.equations import PDE as PDE
    from scitoolkit.superresolution.equations import Residuals as Residuals
    from scitoolkit.superresolution.job import SuperresolutionJob as SuperresolutionJob
    from scitoolkit.superresolution.model import MeshfreeFlowNet as MeshfreeFlowNet
    from scitoolkit.superresolution.predict import stream as stream
    from scitoolkit.superresolution.surrogate import QueryableField as QueryableField
    from scitoolkit.superresolution.surrogate import (
        SuperresolutionSurrogate as SuperresolutionSurrogate,
    )

_HOMES = {
    "CheckReport": "checking",
    "MeshfreeFlowNet": "model",
    "PDE": "equations",
    "QueryableField": "surrogate",
    "Residuals": "equations",
    "SuperresolutionConfig": "config",
    "SuperresolutionJob": "job",
    "SuperresolutionSurrogate": "surrogate",
    "check": "checking",
    "stream": "predict",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
