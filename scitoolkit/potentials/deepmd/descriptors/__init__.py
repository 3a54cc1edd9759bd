"""Descriptors of atomic environments; plug-ins add more through `scitoolkit.descriptor`."""
