"""Configuration of the LSTM networks that correct a forecast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from scitoolkit.core.config import Config, refuse_unused


class ArchitectureConfig(Config):
    """Chain of LSTM layers with skip connections, usually found by a search.

    Attributes:
        nodes: width of every layer, 0 for no layer; node i reads the output of node i - 1.
        skips: pairs [a, b] with a < b: output a is added to output b; output 0 is the input.
    """

    nodes: list[NonNegativeInt] = Field(min_length=1)
    skips: list[tuple[NonNegativeInt, PositiveInt]] = Field(default=[])

    @model_validator(mode="after")
    def _skips_fit(self) -> ArchitectureConfig:
        for number, (start, end) in enumerate(self.skips):
            if (start, end) in self.skips[:number]:
                raise ValueError(f"skip [{start}, {end}] is listed twice; allowed: every skip once")
            if not start < end <= len(self.nodes):
                raise ValueError(
                    f"skip [{start}, {end}] does not fit {len(self.nodes)} nodes; "
                    "allowed: [a, b] with 0 <= a < b <= number of nodes"
                )
        return self


class NetworkConfig(Config):
    """LSTM network that maps a window of mode coefficients to the coefficients of all leads.

    Attributes:
        head: how the leads are computed from the states; see `PodLSTM`.
        hidden: width of a layer.
        layers: number of stacked layers.
        architecture: layers of different widths with skip connections; replaces `hidden` and
            `layers`.
        seasonal_inputs: whether cos and sin of the season are additional inputs.
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
"""Names of models with a fixed base forecaster, used regardless of the validation error."""


class LSTMConfig(NetworkConfig):
    """Ensemble of POD-LSTMs and the forecast that they correct.

    Attributes:
        name: `auto` corrects the best closed form and is used if it lowers the validation error;
            `none` trains no network; `damped_residual_lstm` corrects the damped anomaly,
            `increment_lstm` anomaly persistence and `pod_lstm` the climatology. The last three are
            used regardless of the validation error.
    """

    name: Literal["auto", "none", "damped_residual_lstm", "increment_lstm", "pod_lstm"] = "auto"
