"""Symmetric contraction of MACE as a generated sparse polynomial with fused derivatives."""

from scitoolkit.ops.symmetric_contraction.elements import Elements
from scitoolkit.ops.symmetric_contraction.public import symmetric_contraction
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec

__all__ = ["ContractionSpec", "Elements", "symmetric_contraction"]
