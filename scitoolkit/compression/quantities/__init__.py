"""Error bounds on quantities derived from several variables."""

from scitoolkit.compression.quantities.check import CommonGrid, Quantity, grid_of
from scitoolkit.compression.quantities.compress import QUANTITIES, compress_quantities
from scitoolkit.compression.quantities.text import QuantityText

__all__ = ["QUANTITIES", "CommonGrid", "Quantity", "QuantityText", "compress_quantities", "grid_of"]
