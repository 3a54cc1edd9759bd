"""Sums of gradients over the ranks of data-parallel training."""
