"""Error bounds on quantities derived from several variables."""

from scitoolkit.compression.quantities.check import Quantity, QuantityGrid, grid_of
from scitoolkit.compression.quantities.compress import QUANTITIES, compress_quantities
from scitoolkit.compression.quantities.text import QuantityText

__all__ = [
    "QUANTITIES",
    "Quantity",
    "QuantityGrid",
    "QuantityText",
    "compress_quantities",
    "grid_of",
]
