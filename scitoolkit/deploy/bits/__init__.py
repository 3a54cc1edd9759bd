"""Quantised weights of 8, 4 and 2 bits: codes, rounding, kernels."""
