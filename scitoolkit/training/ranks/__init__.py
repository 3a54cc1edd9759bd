"""Differentiable collectives with traffic counters, based on a single uneven all-to-all."""
