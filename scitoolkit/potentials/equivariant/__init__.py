"""Equivariant message-passing potentials: MACE and NequIP."""
