"""MeshfreeFlowNet: coarse fields to a continuous solution of equations that are given as text."""

from __future__ import annotations

from scitoolkit.core.lazy import lazy_names

_HOMES = {
    "CheckReport": "checking",
    "QueryableField": "surrogate",
    "MeshfreeFlowNet": "model",
    "PDE": "equations",
    "Residuals": "equations",
    "SuperresolutionConfig": "config",
    "SuperresolutionJob": "job",
    "SuperresolutionSurrogate": "surrogate",
    "check": "checking",
    "stream": "predict",
}
__all__ = sorted(_HOMES)


__getattr__ = lazy_names(__name__, _HOMES)
