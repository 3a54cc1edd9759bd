"""Search spaces of the forecasting domain, as plain data; keys are those of its configuration.

`scitoolkit.search.spaces.pod_lstm` is the space made of `POD_LSTM`, and a search configuration
names it by `space: pod_lstm`.
"""

from __future__ import annotations

from typing import Any

POD_LSTM: dict[str, Any] = {
    "model.architecture": {"nodes": 5, "choices": [0, 16, 32, 48, 64, 80, 96], "reach": 2},
}
"""Stacked LSTMs of Maulik et al. 2020 (arXiv:2004.10928): 7**5 * 2**9 = 8,605,184 of them."""

POD_LSTM_FULL: dict[str, Any] = {
    **POD_LSTM,
    "model.head": ["last_state", "all_steps", "encoder_decoder"],
    # What the network predicts: what the best closed form leaves, the increment, the value.
    "model.name": ["auto", "damped_residual_lstm", "increment_lstm", "pod_lstm"],
    "pod.rank": [3, 5, 8, 12],
    "inputs": [8, 10, 12],  # the head all_steps needs as many as there are leads
    "training.batch_size": [8, 16, 32],
    "training.optimizer.lr": {"low": 3e-4, "high": 1e-2, "log": True},
    "training.optimizer.weight_decay": {"low": 1e-4, "high": 0.3, "log": True},
}
"""The same with heads, what is corrected, rank, window and training."""
