"""Search spaces of interatomic potentials, as plain data; keys are those of the configuration."""

from __future__ import annotations

from typing import Any

MACE: dict[str, Any] = {
    "model.cutoff": [4.0, 4.5, 5.0, 5.5, 6.0],
    "model.channels": [8, 16, 32, 64],
    "model.lmax": [2, 3],
    "model.lmax_hidden": [0, 1, 2],
    "model.correlation": [1, 2, 3],
    "model.layers": [1, 2, 3],
    "model.radial_widths": [[32, 32], [64, 64], [64, 64, 64]],
    "training.optimizer.lr": {"low": 1e-3, "high": 2e-2, "log": True},
}
"""Cutoff, irreps, correlation order, layers, radial network and learning rate of a `mace` model."""

SE_E2_A: dict[str, Any] = {
    "model.cutoff": [4.0, 5.0, 6.0, 7.0],
    "model.cutoff_smooth": [0.5, 2.0, 3.0],
    "model.embedding": [[8, 16], [10, 20, 40], [25, 50, 100]],
    "model.axis_neurons": [4, 8, 16],
    "model.fitting": [[32, 32], [64, 64, 64], [120, 120, 120], [240, 240, 240]],
    "training.optimizer.lr": {"low": 3e-4, "high": 1e-2, "log": True},
}
"""Cutoff, embedding and fitting networks and learning rate of an `se_e2_a` model."""

NEQUIP: dict[str, Any] = {
    "model.cutoff": [4.0, 4.5, 5.0, 5.5, 6.0],
    "model.channels": [8, 16, 32, 64],
    "model.lmax": [0, 1, 2, 3],
    "model.layers": [2, 3, 4, 5],
    "model.radial_widths": [[32, 32], [64, 64]],
    "training.optimizer.lr": {"low": 1e-3, "high": 2e-2, "log": True},
}
"""Cutoff, irreps, layers, radial network and learning rate of a `nequip` model."""
