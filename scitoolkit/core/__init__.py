"""Foundations that import nothing of ours: config, errors, registry, run directory, seeds."""
