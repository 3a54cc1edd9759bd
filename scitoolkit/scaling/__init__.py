"""Scaling of data-parallel training: measurements and predictions (`scitoolkit bench training`)."""
