"""Configuration of the networks that correct a forecast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from scitoolkit.core.config import Config, refuse_unused


class ArchitectureConfig(Config):
    """A chain of LSTM layers with skip connections, as a search finds it.

    Attributes:
        nodes: width of every layer, 0 for none; node i reads the output of node i - 1.
        skips: pairs [a, b], a < b: output a is added to output b; 0 is the input.
    """

    nodes: list[NonNegativeInt] = Field(min_length=1)
    skips: list[tuple[NonNegativeInt, PositiveInt]] = Field(default=[])

    @model_validator(mode="after")
    def _skips_fit(self) -> ArchitectureConfig:
        for start, end in self.skips:
            if not start < end <= len(self.nodes):
                raise ValueError(
                    f"skip [{start}, {end}] does not fit {len(self.nodes)} nodes; "
                    "allowed: [a, b] with 0 <= a < b <= number of nodes"
                )
        return self


class NetworkConfig(Config):
    """One network from a window of mode coefficients to the next ones.

    Attributes:
        head: how outputs are read off the states.
        hidden: width of a layer.
        layers: stacked layers.
        architecture: layers of different widths with skip connections, instead of `hidden` and
            `layers`.
        seasonal_inputs: whether cos and sin of the season are inputs too.
    """

    head: Literal["all_steps", "last_state", "encoder_decoder"] = "last_state"
    hidden: PositiveInt = 16
    layers: PositiveInt = 1
    architecture: ArchitectureConfig | None = None
    seasonal_inputs: bool = True

    @model_validator(mode="after")
    def _read(self) -> NetworkConfig:
        if self.architecture is not None:
            refuse_unused(self, "architecture", "hidden", "layers")
        return self


FIXED_BASES = ("damped_residual_lstm", "increment_lstm", "pod_lstm")
"""Names of models that correct a certain forecast, whatever validation says."""


class LSTMConfig(NetworkConfig):
    """An ensemble of POD-LSTMs, and what they correct.

    Attributes:
        name: `auto` corrects the best closed form, and is used if it wins on validation; `none`
            trains no network; `damped_residual_lstm` corrects the damped anomaly, `increment_lstm`
            the last anomaly, `pod_lstm` the climatology (so that it predicts the value), and these
            are used whatever validation says.
    """

    name: Literal["auto", "none", "damped_residual_lstm", "increment_lstm", "pod_lstm"] = "auto"
