"""Radial basis functions with a smooth cutoff and fused derivatives, as generated kernels."""

from scitoolkit.ops.radial.public import radial_basis
from scitoolkit.ops.radial.spec import RadialSpec

__all__ = ["RadialSpec", "radial_basis"]
