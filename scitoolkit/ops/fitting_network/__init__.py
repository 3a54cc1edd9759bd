"""Fitting networks of Deep Potentials with derivatives in a single kernel."""

from scitoolkit.ops.fitting_network.public import FittingNetwork, available
from scitoolkit.ops.fitting_network.spec import FittingSpec

__all__ = ["FittingNetwork", "FittingSpec", "available"]
