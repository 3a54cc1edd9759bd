"""Super-resolution up to its training."""

from __future__ import annotations

from functools import partial

from scitoolkit.superresolution.stages import SuperresolutionStages
from scitoolkit.surrogate import start

prepare = partial(start, SuperresolutionStages())


def shape_of(prepared):
    """Return grid and layout of the training crops."""
    crops = prepared.loaders["train"].source
    return crops.grid, crops.layout
