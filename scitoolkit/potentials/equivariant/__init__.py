"""Equivariant message passing: MACE and NequIP on the kernels of `scitoolkit.ops`."""
