"""Results of an evaluation as plain data: metrics, tables and specifications of figures.

A domain writes its `Results` into the run directory as `results.json` and gridded fields as
`results.nc`. The report and the command line read only these files, so a new domain needs no
plotting code, and a report can be redrawn later without the model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import write_atomic

FILE_NAME = "results.json"
FIELDS_NAME = "results.nc"


Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A float that may be NaN or infinite, which JSON stores as null; null is read as NaN."""


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class Table(_Part):
    """A table: `rows[i][j]` belongs to `columns[j]`; units are part of the column's name."""

    title: str
    columns: list[str]
    rows: list[list[float | int | str | None]]
    note: str = ""
    best: Literal["min", "max"] | None = None
    """Whether the smallest or the largest number of each numeric column is marked."""


Role = Literal["main", "baseline", "reference"]
"""Role of a line in a figure: the surrogate, a baseline, or the truth."""


class Series(_Part):
    """One line (or one row of bars) of a figure; `low`/`high` draw a band around it."""

    label: str
    y: list[float | None]
    x: list[Number] | None = None
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    role: Role = "main"
    style: Literal["line", "points"] = "line"
    """`points`: a scatter plot, for values without an order along x."""


class Lines(_Part):
    """A line plot with a common x axis."""

    kind: Literal["lines"] = "lines"
    title: str
    x: list[Number]
    x_label: str
    y_label: str
    series: list[Series]
    log_x: bool = False
    log_y: bool = False
    note: str = ""


class Panel(_Part):
    """One map: a 2-D selection `variable[select]` of `results.nc`.

    Panels with the same `scale` share a colour scale; `diverging` centres it on zero.
    """

    variable: str
    select: dict[str, int] = {}
    label: str
    scale: str = "field"
    diverging: bool = False


class Maps(_Part):
    """Maps side by side; NaN (land or missing values) is drawn in grey.

    `animate` names a dim of `results.nc` to animate over; panels do not select along it.
    """

    kind: Literal["maps"] = "maps"
    title: str
    panels: list[Panel]
    unit: str = ""
    columns: int = 3
    note: str = ""
    animate: str = ""


class Points(_Part):
    """A scatter plot; the points of series named in `joined` are connected in the given order."""

    kind: Literal["points"] = "points"
    title: str
    x_label: str
    y_label: str
    series: list[Series]
    joined: list[str] = []
    log_x: bool = False
    log_y: bool = False
    note: str = ""


class Bars(_Part):
    """Horizontal bars, one per label, the first on top."""

    kind: Literal["bars"] = "bars"
    title: str
    labels: list[str]
    values: list[Number]
    x_label: str
    note: str = ""


class Scale(_Part):
    """One axis of `Parallel`: numbers, or the positions 0, 1, ... of `ticks`."""

    label: str
    ticks: list[str] = []
    log: bool = False


class Parallel(_Part):
    """Parallel coordinates: one line across all axes per row, coloured by `colour`.

    None leaves a gap where an axis does not apply; row `marked` is highlighted.
    """

    kind: Literal["parallel"] = "parallel"
    title: str
    axes: list[Scale]
    rows: list[list[float | None]]
    colour: list[Number]
    colour_label: str
    marked: int | None = None
    note: str = ""


class Diagram(_Part):
    """Boxes from left to right, connected by arrows.

    Arrows that skip a box, or connect neighbours a second time, are curved.
    """

    kind: Literal["diagram"] = "diagram"
    title: str
    boxes: list[str]
    arrows: list[tuple[int, int]]
    note: str = ""


Figure = Annotated[Lines | Maps | Points | Bars | Parallel | Diagram, Field(discriminator="kind")]


class Verdict(_Part):
    """Main metric of a run compared with the best baseline: the first line of its report.

    Attributes:
        quantity: name of the metric, such as "RMSE over 8 leads".
        ours, rival: values of the surrogate and of the baseline, None without a baseline.
        rival_name: name of the baseline, such as "damped anomaly".
        unit: unit of both values, "" for a pure number.
        better: whether smaller or larger values are better.
        rate: whether a ratio of the values is meaningful (errors, times); otherwise the margin is
            a difference (R², dB, accuracy).

    Example:
        >>> verdict = Verdict(quantity="RMSE", ours=0.2, rival=0.5, rival_name="persistence",
        ...                   unit="K")
        >>> verdict.sentence
        'RMSE 0.2 K; persistence 0.5 K (2.5 x better).'
        >>> Verdict(quantity="accuracy", ours=0.81, rival=0.78, rival_name="features alone",
        ...         better="max", rate=False).margin
        '+0.03'
    """

    quantity: str
    ours: Number
    rival: float | None = None
    rival_name: str = ""
    unit: str = ""
    better: Literal["min", "max"] = "min"
    rate: bool = True

    @classmethod
    def among(
        cls, values: Mapping[str, float | None], ours: str, quantity: str, **settings: Any
    ) -> Verdict | None:
        """Compare one method with the best of the others; None if it has no finite value.

        Args:
            values: the metric of each method.
            ours: key of the method to compare with the others.
            quantity: name of the metric.
            settings: other fields of `Verdict`.

        Example:
            >>> Verdict.among({"net": 1.0, "mean": 3.0, "last": 2.0}, "net", "RMSE").rival_name
            'last'
        """
        known = {k: v for k, v in values.items() if v is not None and math.isfinite(v)}
        if ours not in known:
            return None
        value = known.pop(ours)
        pick = max if settings.get("better") == "max" else min
        best = pick(known, key=lambda name: known[name]) if known else None
        return cls(
            quantity=quantity, ours=value, rival=None if best is None else known[best],
            rival_name=best or "", **settings,
        )  # fmt: skip

    @property
    def margin(self) -> str:
        """Improvement over the baseline as a ratio (above 1 is better) or difference (above 0)."""
        if self.rival is None:
            return ""
        worse, good = (self.rival, self.ours) if self.better == "max" else (self.ours, self.rival)
        if self.rate and self.ours > 0 and self.rival > 0:
            return f"{good / worse:.3g} x"
        return f"{good - worse:+.3g}"

    @property
    def wins(self) -> bool:
        """Whether the surrogate is better than the baseline, or there is no baseline."""
        if self.rival is None:
            return True
        return self.ours < self.rival if self.better == "min" else self.ours > self.rival

    def shown(self, value: float | None) -> str:
        """Format one of the two values with its unit, a dash for None."""
        if value is None:
            return "–"
        return f"{value:.4g}" + (f" {self.unit}" if self.unit not in ("", "1") else "")

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with units."""
        text = f"{self.quantity} {self.shown(self.ours)}"
        if self.rival is None:
            return f"{text}."
        word = "" if self.margin.startswith(("+", "-")) else " better" if self.wins else ""
        return f"{text}; {self.rival_name} {self.shown(self.rival)} ({self.margin}{word})."


class Results(_Part):
    """Results of an evaluation.

    Attributes:
        title: title of the report.
        verdict: main metric compared with the best baseline.
        summary: a few plain-text sentences, each supported by the tables.
        metrics: name -> value; units in the name's suffix or in `units`.
        units: unit of each metric that has one.
        tables: shown first in the report.
        figures: drawn by `scitoolkit.reporting`; the first one supports the verdict.
    """

    title: str
    verdict: Verdict | None = None
    summary: list[str] = []
    metrics: dict[str, float | int | str | None] = {}
    units: dict[str, str] = {}
    tables: list[Table] = []
    figures: list[Figure] = []

    def write(self, directory: Path) -> Path:
        """Write `results.json` into `directory` and return its path."""
        path = Path(directory) / FILE_NAME
        write_atomic(path, self.model_dump_json(indent=1))
        return path

    def write_run(self, directory: Path, model: Path) -> None:
        """Write `results.json` into a run and its metrics, as metrics.json, next to its model.

        Args:
            directory: the run directory.
            model: the folder of the trained model.
        """
        self.write(directory)
        metrics = json.loads(self.model_dump_json(include={"metrics"}))["metrics"]  # NaN as null
        text = json.dumps({"units": self.units, **metrics}, indent=1)
        write_atomic(Path(model) / "metrics.json", text + "\n")

    @classmethod
    def read(cls, directory: Path) -> Results:
        """Read `results.json` of a run directory.

        Raises:
            DataError: it is missing or not a results file.
        """
        path = Path(directory) / FILE_NAME
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise DataError(
                "no results", where=str(path), fix=f"scitoolkit evaluate {directory}"
            ) from None
        except ValidationError as error:
            raise DataError(
                f"not a results file ({error.errors()[0]['msg']})", where=str(path)
            ) from None


def number(value: Any) -> float | None:
    """Convert `value` to a JSON-safe float: None for NaN and infinities."""
    value = float(value)
    return value if value == value and abs(value) != float("inf") else None
