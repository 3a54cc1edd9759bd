"""Lowerings of ATen operators to C, one file per family; plug-ins may add others."""
