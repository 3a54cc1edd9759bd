"""Periodic neighbour lists, grouped by centre and neighbour type."""

from scitoolkit.ops.neighbours.lists import available, neighbour_list

__all__ = ["available", "neighbour_list"]
