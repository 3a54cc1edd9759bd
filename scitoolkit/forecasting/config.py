"""Configuration of a forecasting job."""

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
    "BacktestConfig",
    "DriverConfig",
    "FieldConfig",
    "ForecastingConfig",
    "LSTMConfig",
    "PodConfig",
]


STATSFORECAST_MODELS = ("AutoARIMA", "AutoETS", "AutoTheta", "SeasonalNaive")
"""Models of statsforecast that a report may compare with."""
StatsforecastName = Literal["AutoARIMA", "AutoETS", "AutoTheta", "SeasonalNaive"]


class DriverConfig(Config):
    """Driver: a time series that influences the field and is known in advance, such as a forcing.

    Attributes:
        variable: name in the file; its only dim is time.
        path: file of the driver; None for the file of the field.
    """

    variable: str
    path: DataPath | None = None


class FieldConfig(Config):
    """Field to forecast and the files that contain it.

    Attributes:
        path: a file, a directory, a pattern with `*`, or a list of files. Several files are one
            simulation each, or parts of one simulation if their times are consecutive; no window
            spans two simulations.
        variable: name in the file.
        variables: several names instead, on a common grid; each is scaled by its standard
            deviation.
        units: unit that the file must state; assumed if the file states none.
        transform: `sqrt` or `log1p` of u - minimum, applied before forecasting; one for all
            variables, or a mapping by name.
        minimum, maximum: bounds of values, forecasts and intervals; one for all variables, or a
            mapping by name.
        drivers: series whose linear effect is removed before and added after forecasting; they
            must cover the forecast times.
        parameters: numbers that differ between simulations (attributes or scalars of the files,
            or columns of `parameter_table`). Each is an additional, constant variable.
        parameter_table: CSV file with one line per simulation.
        dims: dim names for a plain HDF5 file, which stores none.
        files: `simulations` (one per file), `parts` of one simulation, or `auto` (by their times).
        memory: arrays of the field larger than this are mapped to files in the temporary folder.
        fill: largest number of missing steps in a row that are interpolated in time; windows do
            not cross longer gaps.
    """

    path: DataPath | list[DataPath]
    variable: str = ""
    variables: list[str] = Field(default=[])
    units: str | None = None
    dims: list[str] | None = None
    files: Literal["auto", "simulations", "parts"] = "auto"
    memory: str = "1GiB"
    fill: NonNegativeInt = 0
    transform: Transform | dict[str, Transform] = "none"
    minimum: float | dict[str, float] | None = None
    maximum: float | dict[str, float] | None = None
    drivers: list[DriverConfig] = Field(default=[])
    parameters: list[str] = Field(default=[])
    parameter_table: DataPath | None = None

    @model_validator(mode="after")
    def _one_or_several(self) -> FieldConfig:
        if bool(self.variable) == bool(self.variables):
            raise ValueError("set either variable (one name) or variables (a list of names)")
        if len(set(self.variables)) < len(self.variables) or len(self.variables) == 1:
            raise ValueError(
                "variables needs two or more different names; use variable for a single one"
            )
        if self.variables and self.units:
            raise ValueError("units applies to a single variable; leave it out with variables")
        names = self.variables or [self.variable]
        drivers = [driver.variable for driver in self.drivers]
        own = [d.variable for d in self.drivers if d.path is None or d.path == self.path]
        leaks = [name for name in own if name in names]
        if leaks:
            raise ValueError(
                f"drivers: {leaks[0]} is a variable that is forecast, which nobody knows"
            )
        if len({(driver.variable, str(driver.path)) for driver in self.drivers}) < len(drivers):
            raise ValueError("drivers: one is listed twice; list each once")
        twice = [n for i, n in enumerate(self.parameters) if n in [*names, *self.parameters[:i]]]
        if twice:
            raise ValueError(f"parameters: {twice[0]} is listed twice or is a variable")
        if not self.parameters:
            refuse_unused(self, "no parameters", "parameter_table")
        for key in ("transform", "minimum", "maximum"):
            setting = getattr(self, key)
            wrong = [n for n in setting if n not in names] if isinstance(setting, dict) else []
            if wrong:
                raise ValueError(f"{key}.{wrong[0]}: no such variable; allowed: {', '.join(names)}")
        return self

    @staticmethod
    def of(setting: Any, name: str) -> Any:
        """Return the setting of a variable from a common value or a mapping by name."""
        return setting.get(name) if isinstance(setting, dict) else setting

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages required to read the files."""
        from scitoolkit.io.campaign.files import campaign_packages

        return campaign_packages(self.path)

    @property
    def changed(self) -> int:
        """Last modification time of the files in ns, 0 if they do not exist."""
        from scitoolkit.io.campaign.files import find_files

        try:
            return int(find_files(self.path).modified.max(initial=0))
        except DataError:
            return 0


class PodConfig(Config):
    """POD subspace of the network.

    Attributes:
        rank: number of modes, a share of variance, or `forecast` (least validation error).
        max_memory: memory limit of the decomposition, such as `1GiB`.
    """

    rank: PositiveInt | Annotated[float, Field(gt=0, lt=1)] | Literal["forecast"] = 5
    max_memory: str = "1GiB"


class BacktestConfig(Config):
    """Forecasts from origins spread over the test part, as they would have been issued.

    Attributes:
        origins: number of origins, evenly spaced over those of the test part.
        refit: fit the forecaster and its baselines again to all steps before each origin, with the
            settings selected before the test part; false keeps the one fit.
    """

    origins: Annotated[int, Field(ge=2)] = 10
    refit: bool = True


class ForecastingConfig(SeededConfig):
    """Forecasting job: field, split, window, forecaster, network and training.

    Attributes:
        data: field and files.
        split: training, validation and test parts.
        inputs: number of input steps.
        leads: number of forecast steps.
        season: periods in steps, such as `[24, 168]`, the main one first; `calendar` uses those of
            dates (the year; of finer steps the day and the week, if held-out blocks confirm them),
            `search` also periods that stand out in the spectrum and are confirmed.
        harmonics: candidate numbers of harmonics of the year or the main season, selected by
            blocked validation.
        forecaster: one family, whose unset settings are selected by validation, or `auto`, which
            compares all closed forms and selects the best one or a stacking of the best.
        intervals: `static` widths from errors before the test part, or `adaptive` widths, which
            follow the errors of verified forecasts.
        baselines: models of statsforecast in the report beside our own forecasters; `auto`
            compares all four for at most 4 series if the package is installed, `[]` none.
        backtest: forecasts from origins in the test part, each with its own fit; None for none.
        pod: subspace of the network.
        model: network that corrects the forecaster.
        ensemble: number of networks, which differ by their initialisation.
        training: of the networks.
    """

    domain: Literal["forecasting"] = "forecasting"
    data: FieldConfig
    split: SplitConfig = SplitConfig()
    inputs: PositiveInt = 8
    leads: PositiveInt = 8
    season: Literal["calendar", "search"] | list[Annotated[float, Field(ge=2)]] = "calendar"
    harmonics: list[NonNegativeInt] = Field(default=[1, 2, 3, 4], min_length=1)
    pod: PodConfig = PodConfig()
    forecaster: Annotated[ForecasterConfig | Literal["auto"], Choice(forecasters, ("auto",))] = (
        "auto"
    )
    intervals: Literal["static", "adaptive"] = "static"
    baselines: Literal["auto"] | list[StatsforecastName] = "auto"
    backtest: BacktestConfig | None = None
    model: LSTMConfig = LSTMConfig()
    ensemble: PositiveInt = 3
    training: TrainingConfig = TrainingConfig()

    def required_packages(self) -> tuple[str, ...]:
        """Return the package of listed baselines; `auto` does without."""
        listed = self.baselines != "auto" and bool(self.baselines)
        return (*super().required_packages(), *(["statsforecast"] if listed else []))

    def seeded_sections(self) -> tuple[str, ...]:
        """Return the sections that inherit the job's `seed` unless they set their own."""
        split = ("split",) if self.split.name == "random" else ()
        return (*super().seeded_sections(), "forecaster", *split)

    @model_validator(mode="after")
    def _heads_fit(self) -> ForecastingConfig:
        if not isinstance(self.season, str) and len(set(self.season)) < len(self.season):
            raise ValueError(f"season: {self.season} has a period twice; list each once")
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
            # A search disables progress in its trials, with or without a network.
            plain = TrainingConfig(seed=self.seed, progress=self.training.progress)
            written = [key for key, value in self.training if value != getattr(plain, key)]
            if written:
                raise ValueError(
                    f"training.{written[0]}: model.name none trains no network; leave it out"
                )
        return self
