"""Interpolation of functions of one scalar on a grid, to replace a network at every edge."""

from scitoolkit.ops.interpolation.grid import EquidistantGrid, Placement
from scitoolkit.ops.interpolation.public import piecewise_polynomial

__all__ = ["EquidistantGrid", "Placement", "piecewise_polynomial"]
