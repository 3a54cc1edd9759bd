"""Energies of atoms from the moments of their environments, with the derivative."""

from scitoolkit.ops.fitting_network.public import FittingNetwork, FittingSpec, available

__all__ = ["FittingNetwork", "FittingSpec", "available"]
