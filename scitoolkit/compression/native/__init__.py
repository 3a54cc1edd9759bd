"""C library of the codecs, shared by Python, the HDF5 filter and the Zarr codecs."""
