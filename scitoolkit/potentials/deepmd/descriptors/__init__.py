"""Descriptors of atomic environments, one file each; more come through `scitoolkit.descriptor`."""
