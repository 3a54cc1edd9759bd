"""The configuration of a forecasting job."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from scitoolkit.core.config import Config, DataPath
from scitoolkit.core.errors import DataError
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.plugins import Choice
from scitoolkit.forecasting.forecasters.base import ForecasterConfig, forecasters
from scitoolkit.forecasting.network_config import ArchitectureConfig, LSTMConfig
from scitoolkit.io.split import SplitConfig
from scitoolkit.training.config import TrainingConfig

__all__ = ["ArchitectureConfig", "FieldConfig", "ForecastingConfig", "LSTMConfig", "PodConfig"]


class FieldConfig(Config):
    """Which field of which files.

    Attributes:
        path: a file, a directory, a pattern with `*`, or a list of files. Several are one
            simulation each, or parts of one where their times go on; no window crosses from one
            simulation into another.
        variable: name in the file.
        units: unit that the file must state; taken at the user's word where it states none.
        dims: names of the dims of a plain HDF5 file, which has none.
        files: `simulations` (one a file), `parts` of one simulation, or found by their times.
    """

    path: DataPath | list[DataPath]
    variable: str
    units: str | None = None
    dims: list[str] | None = None
    files: Literal["auto", "simulations", "parts"] = "auto"

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages that reading the files needs."""
        from scitoolkit.io.campaign.files import campaign_packages

        return campaign_packages(self.path)

    @property
    def changed(self) -> int:
        """Time of the last change of the files in ns, 0 where they are not here."""
        from scitoolkit.io.campaign.files import find_files

        try:
            return int(find_files(self.path).modified.max())
        except DataError:
            return 0


class PodConfig(Config):
    """The subspace in which the network works.

    Attributes:
        rank: number of modes, a share of variance, or `forecast` (least validated error).
        max_memory: what the decomposition may hold at once.
    """

    rank: PositiveInt | Annotated[float, Field(gt=0, lt=1)] | Literal["forecast"] = 5
    max_memory: str = "1GiB"


class ForecastingConfig(SeededConfig):
    """A forecasting job: the field, its division, the window, the model and its training.

    Attributes:
        inputs: steps that a forecast sees.
        leads: steps that it forecasts.
        harmonics: numbers of annual harmonics to choose from by blocked validation.
        forecaster: one family (settings that are not given are chosen by validation), or `auto`:
            all closed forms are compared, and the best, or a stacking of the best, is delivered.
        ensemble: number of networks; they differ by their initialisation.
    """

    domain: Literal["forecasting"] = "forecasting"
    data: FieldConfig
    split: SplitConfig = SplitConfig()
    inputs: PositiveInt = 8
    leads: PositiveInt = 8
    harmonics: list[NonNegativeInt] = Field(default=[1, 2, 3, 4], min_length=1)
    pod: PodConfig = PodConfig()
    forecaster: Annotated[ForecasterConfig | Literal["auto"], Choice(forecasters, ("auto",))] = (
        "auto"
    )
    model: LSTMConfig = LSTMConfig()
    ensemble: PositiveInt = 3
    training: TrainingConfig = TrainingConfig()

    def seeded_sections(self) -> tuple[str, ...]:
        """Return the sections whose `seed` is that of the job unless they set it."""
        split = ("split",) if self.split.name == "random" else ()
        return (*super().seeded_sections(), "forecaster", *split)

    @model_validator(mode="after")
    def _heads_fit(self) -> ForecastingConfig:
        if self.model.head == "all_steps" and self.leads > self.inputs:
            raise ValueError(
                f"model.head all_steps needs leads <= inputs, got {self.leads} > {self.inputs}"
            )
        if self.forecaster != "auto" and self.model.name in ("damped_residual_lstm", "pod_lstm"):
            raise ValueError(
                f"model.name {self.model.name} sets the forecaster that the network corrects, so "
                "forecaster must be auto; model.name auto corrects any forecaster"
            )
        if self.model.name == "none":
            # A search switches progress off for its trials, whatever they fit.
            plain = TrainingConfig(seed=self.seed, progress=self.training.progress)
            written = [key for key, value in self.training if value != getattr(plain, key)]
            if written:
                raise ValueError(
                    f"training.{written[0]}: nothing is trained with model.name none; leave out"
                )
        return self
