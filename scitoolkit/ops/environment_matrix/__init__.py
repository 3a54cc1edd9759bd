"""Moments of smooth environment matrices (DeepPot-SE) with first and second derivatives."""

from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec

__all__ = ["EnvironmentSpec"]
