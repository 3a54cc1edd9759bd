"""Gradient exchange of data-parallel training: full precision, quantised, error-bounded."""
