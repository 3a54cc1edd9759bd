"""Search spaces of super-resolution networks: {key of the configuration: values}."""

from __future__ import annotations

from typing import Any

MESHFREEFLOWNET: dict[str, Any] = {
    "model.encoder.widths": [[32, 48], [32, 64], [64, 96], [64, 96, 128]],
    "model.encoder.blocks": [1, 2],
    "model.encoder.channels": [16, 24, 32],
    "model.decoder": [
        {"name": "mlp", "widths": widths, "activation": activation}
        for widths in ([32, 32], [48, 48], [64, 64, 64])
        for activation in ("silu", "tanh", "softplus")
    ],
    "model.blend": ["linear", "smooth"],
    "pde.weight": {"low": 1e-3, "high": 1.0, "log": True},
    "training.optimizer.lr": {"low": 3e-4, "high": 1e-2, "log": True},
}
"""Search space of encoder, decoder, blending, residual weight and learning rate."""
