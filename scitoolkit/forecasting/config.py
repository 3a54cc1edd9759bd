"""The configuration of a forecasting job."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from scitoolkit.core.config import Config, DataPath, refuse_unused
from scitoolkit.core.errors import DataError
from scitoolkit.core.job_config import SeededConfig
from scitoolkit.core.plugins import Choice
from scitoolkit.forecasting.coding import Transform
from scitoolkit.forecasting.forecasters.base import ForecasterConfig, forecasters
from scitoolkit.forecasting.network_config import FIXED_BASES, ArchitectureConfig, LSTMConfig
from scitoolkit.io.split import SplitConfig
from scitoolkit.training.config import TrainingConfig

__all__ = [
    "ArchitectureConfig",
    "DriverConfig",
    "FieldConfig",
    "ForecastingConfig",
    "LSTMConfig",
    "PodConfig",
]


class DriverConfig(Config):
    """A series in time that acts on the field and is known in advance: a forcing, an index.

    Attributes:
        variable: name in the file, of dim time only.
        path: its file; that of the field unless given.
    """

    variable: str
    path: DataPath | None = None


class FieldConfig(Config):
    """Which field of which files.

    Attributes:
        path: a file, a directory, a pattern with `*`, or a list of files. Several are one
            simulation each, or parts of one where their times go on; no window crosses from one
            simulation into another.
        variable: name in the file.
        variables: several names instead, on one grid; each counts by its own deviation.
        units: unit that the file must state; taken at the user's word where it states none.
        transform: `sqrt` or `log1p` of u - minimum is what is forecast; one for all variables, or
            by name.
        minimum, maximum: what values, forecasts and intervals cannot leave; likewise.
        drivers: series that are regressed out and put back onto the forecast, whose values must
            be given for the times that are forecast too.
        parameters: numbers that differ by simulation (attributes, scalars in the files, or columns
            of `parameter_table`). Forecasters see each as one more variable that does not change.
        parameter_table: CSV file, one line a simulation.
        dims: names of the dims of a plain HDF5 file, which has none.
        files: `simulations` (one a file), `parts` of one simulation, or found by their times.
        memory: arrays of the field above this size are kept in files of the temporary folder.
    """

    path: DataPath | list[DataPath]
    variable: str = ""
    variables: list[str] = Field(default=[])
    units: str | None = None
    dims: list[str] | None = None
    files: Literal["auto", "simulations", "parts"] = "auto"
    memory: str = "1GiB"
    transform: Transform | dict[str, Transform] = "none"
    minimum: float | dict[str, float] | None = None
    maximum: float | dict[str, float] | None = None
    drivers: list[DriverConfig] = Field(default=[])
    parameters: list[str] = Field(default=[])
    parameter_table: DataPath | None = None

    @model_validator(mode="after")
    def _one_or_several(self) -> FieldConfig:
        if bool(self.variable) == bool(self.variables):
            raise ValueError("set either variable (one) or variables (a list of names)")
        if len(set(self.variables)) < len(self.variables) or len(self.variables) == 1:
            raise ValueError("variables: two different names or more; variable names a single one")
        if self.variables and self.units:
            raise ValueError("units is read with a single variable; leave it out")
        names = self.variables or [self.variable]
        twice = [n for i, n in enumerate(self.parameters) if n in [*names, *self.parameters[:i]]]
        if twice:
            raise ValueError(f"parameters: {twice[0]} is there twice, or a variable too")
        if not self.parameters:
            refuse_unused(self, "no parameters", "parameter_table")
        for key in ("transform", "minimum", "maximum"):
            given = getattr(self, key)
            wrong = [n for n in given if n not in names] if isinstance(given, dict) else []
            if wrong:
                raise ValueError(f"{key}.{wrong[0]}: no such variable; allowed: {', '.join(names)}")
        return self

    @staticmethod
    def of(given: Any, name: str) -> Any:
        """Return the setting of a variable: the one for all, or the one under its name."""
        return given.get(name) if isinstance(given, dict) else given

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
        intervals: `static` widths from errors before the test part, or `adaptive` ones, which
            follow the errors of the forecasts whose time has come.
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
    intervals: Literal["static", "adaptive"] = "static"
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
        if self.forecaster != "auto" and self.model.name in FIXED_BASES:
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
