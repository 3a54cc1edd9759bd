"""Real spherical harmonics with fused first and second derivatives, as generated kernels."""

from scitoolkit.ops.spherical_harmonics.public import spherical_harmonics
from scitoolkit.ops.spherical_harmonics.spec import HarmonicsSpec, degrees_of

__all__ = ["HarmonicsSpec", "degrees_of", "spherical_harmonics"]
