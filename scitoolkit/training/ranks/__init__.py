"""Collectives over the ranks of a job, counted and differentiable, written over one all-to-all."""
