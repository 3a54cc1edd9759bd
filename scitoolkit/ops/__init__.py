"""Numerical kernels: generated, compiled on first use, with a readable reference beside each."""
