"""Search spaces of the forecasting domain as plain data, by configuration key.

A search configuration selects `POD_LSTM` by `space: pod_lstm`; in Python it is
`scitoolkit.search.spaces.pod_lstm`.
"""

from __future__ import annotations

from typing import Any

POD_LSTM: dict[str, Any] = {
    "model.architecture": {"nodes": 5, "choices": [0, 16, 32, 48, 64, 80, 96], "reach": 2},
}
"""Stacked LSTMs of Maulik et al. 2020 (arXiv:2004.10928): 7**5 * 2**9 = 8,605,184 networks."""

POD_LSTM_FULL: dict[str, Any] = {
    **POD_LSTM,
    "model.head": ["last_state", "all_steps", "encoder_decoder"],
    # The network predicts the residual of the best closed form, the increment or the anomaly.
    "model.name": ["auto", "damped_residual_lstm", "increment_lstm", "pod_lstm"],
    "pod.rank": [3, 5, 8, 12],
    "inputs": [8, 10, 12],  # the head all_steps needs as many as there are leads
    "training.batch_size": [8, 16, 32],
    "training.optimizer.lr": {"low": 3e-4, "high": 1e-2, "log": True},
    "training.optimizer.weight_decay": {"low": 1e-4, "high": 0.3, "log": True},
}
"""`POD_LSTM` plus head, base forecaster, rank, window and training parameters."""
