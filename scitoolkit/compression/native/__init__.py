"""Codecs in C: one library for Python, HDF5 and Zarr."""
