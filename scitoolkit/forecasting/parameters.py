"""Number of trainable parameters of an ensemble, computed from its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scitoolkit.forecasting.config import ForecastingConfig

LIKELY_MODES = 40
"""Number of modes assumed if `pod.rank` is selected from the data."""


def network_cost(config: ForecastingConfig) -> Mapping[str, float]:
    """Return the number of `parameters` of the ensemble, as a cost of a search."""
    rank = config.pod.rank if isinstance(config.pod.rank, int) else LIKELY_MODES
    return {"parameters": float(num_parameters(config, rank, config.model.seasonal_inputs))}


def num_parameters(config: ForecastingConfig, modes: int, seasonal: bool) -> int:
    """Return the number of parameters of the ensemble that `make_ensemble` builds.

    Args:
        config: window, model and size of the ensemble.
        modes: number of POD modes, which are the outputs of a step.
        seasonal: whether cos and sin of the season are additional inputs.
    """
    model, features = config.model, modes + 2 * seasonal
    total, width = _stack(config, features)
    total += _linear(width, modes * (config.leads if model.head == "last_state" else 1))
    if model.head == "encoder_decoder":
        decoder, decoded = _stack(config, modes)
        total += decoder + (_linear(decoded, modes) if decoded != width else 0)
    return config.ensemble * total


def _stack(config: ForecastingConfig, features: int) -> tuple[int, int]:
    """Return the number of parameters and the output width of a stack of LSTM layers."""
    chain = config.model.architecture
    if chain is not None:
        return _chain(features, chain.nodes, chain.skips)
    hidden = config.model.hidden
    inner = (config.model.layers - 1) * _lstm(hidden, hidden)
    return _lstm(features, hidden) + inner, hidden


def _chain(
    features: int, nodes: Sequence[int], skips: Sequence[tuple[int, int]]
) -> tuple[int, int]:
    widths, total = [features], 0
    for width in nodes:
        total += _lstm(widths[-1], width) if width else 0
        widths.append(width or widths[-1])
    unequal = [(widths[a], widths[b]) for a, b in set(skips) if widths[a] != widths[b]]
    return total + sum(_linear(a, b) for a, b in unequal), widths[-1]


def _lstm(inputs: int, hidden: int) -> int:
    return 4 * hidden * (inputs + hidden + 2)


def _linear(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs
