"""The configuration of a forecasting job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from scitoolkit.core.config import Config, DataPath, refuse_unused
from scitoolkit.core.job_config import JobConfig
from scitoolkit.io.split import SplitConfig
from scitoolkit.training.config import TrainingConfig


class FieldConfig(Config):
    """Which field of which file.

    Attributes:
        path: NetCDF, HDF5 or Zarr.
        variable: name in the file.
        units: unit that the file must state; taken at the user's word where it states none.
        dims: names of the dims of a plain HDF5 file, which has none.
    """

    path: DataPath
    variable: str
    units: str | None = None
    dims: list[str] | None = None


class PodConfig(Config):
    """The subspace in which the network works.

    Attributes:
        rank: number of modes, a share of variance, or `forecast` (least validated error).
        max_memory: what the decomposition may hold at once.
    """

    rank: PositiveInt | Annotated[float, Field(gt=0, lt=1)] | Literal["forecast"] = 5
    max_memory: str = "1GiB"


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


class LSTMConfig(Config):
    """An ensemble of POD-LSTMs, and what they correct.

    Attributes:
        name: `damped_residual_lstm` corrects the damped anomaly, `pod_lstm` the climatology;
            `auto` is the former if it wins on validation, else the baseline that does.
        head: how outputs are read off the states.
        hidden: width of a layer.
        layers: stacked layers.
        architecture: layers of different widths with skip connections, instead of `hidden` and
            `layers`.
        seasonal_inputs: whether cos and sin of the season are inputs too.
    """

    name: Literal["auto", "damped_residual_lstm", "pod_lstm"] = "auto"
    head: Literal["all_steps", "last_state", "encoder_decoder"] = "last_state"
    hidden: PositiveInt = 16
    layers: PositiveInt = 1
    architecture: ArchitectureConfig | None = None
    seasonal_inputs: bool = True

    @model_validator(mode="after")
    def _read(self) -> LSTMConfig:
        if self.architecture is not None:
            refuse_unused(self, "architecture", "hidden", "layers")
        return self


class ForecastingConfig(JobConfig):
    """A forecasting job: the field, its division, the window, the model and its training.

    Attributes:
        inputs: steps that a forecast sees.
        leads: steps that it forecasts.
        harmonics: numbers of annual harmonics to choose from by blocked validation.
        ensemble: number of networks; they differ by their initialisation.
        seed: of the initialisation; `training.seed` is that of the order of batches.
    """

    domain: Literal["forecasting"] = "forecasting"
    data: FieldConfig
    split: SplitConfig = SplitConfig()
    inputs: PositiveInt = 8
    leads: PositiveInt = 8
    harmonics: list[NonNegativeInt] = Field(default=[1, 2, 3, 4], min_length=1)
    pod: PodConfig = PodConfig()
    model: LSTMConfig = LSTMConfig()
    ensemble: PositiveInt = 3
    seed: NonNegativeInt = 0
    training: TrainingConfig = TrainingConfig()

    @model_validator(mode="after")
    def _heads_fit(self) -> ForecastingConfig:
        if self.model.head == "all_steps" and self.leads > self.inputs:
            raise ValueError(
                f"model.head all_steps needs leads <= inputs, got {self.leads} > {self.inputs}"
            )
        return self
