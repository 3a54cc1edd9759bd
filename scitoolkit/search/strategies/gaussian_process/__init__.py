"""Bayesian optimisation by a Gaussian process over real, integer, categorical and conditional
parameters: `strategy: gaussian_process`, the default of a search."""
