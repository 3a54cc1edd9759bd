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
from scitoolkit.core.files import write_atomic
from scitoolkit.core.notebook import html_page, html_table

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
    opposite: list[str] = []
    """Columns in which the other end is best, such as R² beside errors."""


Role = Literal["main", "baseline", "reference", "context"]
"""Role of a line in a figure: the surrogate, a baseline, or the truth.

`context` lines are thin, grey and unlabelled: further baselines, which a table names.
"""


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
    equal: bool = False
    """Whether both axes have the same scale, as in a parity plot."""
    note: str = ""


class Multiples(_Part):
    """Small line plots with the same series and one shared legend."""

    kind: Literal["multiples"] = "multiples"
    title: str
    panels: list[Lines]
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
    unit: str | None = None
    """Unit of this panel's colour bar, None for the figure's."""
    limit: float | None = None
    """Range of the colour scale, from `-limit` if `diverging`, else from 0; None for the data's."""


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
    marked: int | None = None
    """Position of the bar of the surrogate; the others are then grey."""
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


Figure = Annotated[
    Lines | Multiples | Maps | Points | Bars | Parallel | Diagram, Field(discriminator="kind")
]


ACRONYMS = {word.lower(): word for word in ("RMSE", "MSE", "MAE", "NRMSE", "VRMSE", "F1")}
ACRONYMS["r2"] = "R²"


def metric_words(name: str) -> str:
    """Return a metric's name as words.

    Example:
        >>> metric_words("validation_rmse"), metric_words("gradient_norm")
        ('validation RMSE', 'gradient norm')
    """
    return " ".join(ACRONYMS.get(word, word) for word in name.split("_"))


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
        tie: whether the difference is within the measured noise (a bootstrap interval, a seed
            spread); False where the noise is not measured.

    Example:
        >>> verdict = Verdict(quantity="RMSE", ours=0.2, rival=0.5, rival_name="persistence",
        ...                   unit="K")
        >>> verdict.sentence
        'RMSE: 0.2 K, a factor of 2.5 below persistence (0.5 K).'
        >>> verdict.model_copy(update={"ours": 0.499, "tie": True}).sentence
        'RMSE: 0.499 K, 0.2 % below persistence (0.500 K): a tie, within noise.'
        >>> Verdict(quantity="accuracy", ours=0.75, rival=0.78, rival_name="features alone",
        ...         better="max", rate=False).sentence
        'Accuracy: 0.75, 0.03 below features alone (0.78): the baseline is better.'
    """

    quantity: str
    ours: Number
    rival: float | None = None
    rival_name: str = ""
    unit: str = ""
    better: Literal["min", "max"] = "min"
    rate: bool = True
    tie: bool = False

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
        finite = {k: v for k, v in values.items() if v is not None and math.isfinite(v)}
        if ours not in finite:
            return None
        value = finite.pop(ours)
        pick = max if settings.get("better") == "max" else min
        best = pick(finite, key=lambda name: finite[name]) if finite else None
        return cls(
            quantity=quantity,
            ours=value,
            rival=None if best is None else finite[best],
            rival_name=best or "",
            **settings,
        )

    @property
    def wins(self) -> bool:
        """Whether the surrogate is better than the baseline, or there is no baseline."""
        if self.rival is None:
            return True
        return self.ours < self.rival if self.better == "min" else self.ours > self.rival

    @property
    def outcome(self) -> Literal["", "better", "tie", "worse"]:
        """Result of the comparison, "" without a baseline."""
        if self.rival is None or not math.isfinite(self.ours):
            return ""
        if self.tie or self.ours == self.rival:
            return "tie"
        return "better" if self.wins else "worse"

    @property
    def margin(self) -> str:
        """The difference and the outcome, such as "16 % better"; "" without a baseline."""
        amount = self._amount
        if not self.outcome or not amount:
            return self.outcome
        if self.outcome == "tie":
            return f"tie (within {amount})"
        return f"{amount} {self.outcome}"

    @property
    def _amount(self) -> str:
        """Size of the difference: a ratio of 2 or more, percent, or in the unit."""
        if self.rival is None or self.ours == self.rival or not math.isfinite(self.ours):
            return ""
        if not self.rate or self.ours <= 0 or self.rival <= 0:
            return f"{abs(self.ours - self.rival):.3g} {display_unit(self.unit)}".rstrip()
        ratio = max(self.ours / self.rival, self.rival / self.ours)
        percent = 100 * abs(self.ours / self.rival - 1)
        if ratio >= 2:
            return f"{ratio:.3g} x" if ratio < 1000 else f"{ratio:.0f} x"
        return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"

    @property
    def values(self) -> tuple[str, str]:
        """Both values with their unit and the same number of decimals; a dash for None."""
        unit = display_unit(self.unit)
        texts = _alike(self.ours, self.rival)
        ours, rival = (text + (f" {unit}" if unit and text != "–" else "") for text in texts)
        return ours, rival

    @property
    def sentence(self) -> str:
        """The verdict as a sentence, with units."""
        ours, rival = self.values
        text = f"{self.quantity[:1].upper()}{self.quantity[1:]}: {ours}"
        if not self.outcome:
            return f"{text}."
        if self.ours == self.rival:
            return f"{text}, equal to {self.rival_name}."
        assert self.rival is not None
        amount = self._amount
        if amount.endswith(" x"):
            amount = f"a factor of {amount.removesuffix(' x')}"
        side = "below" if self.ours < self.rival else "above"
        end = {"tie": ": a tie, within noise", "worse": ": the baseline is better", "better": ""}
        return f"{text}, {amount} {side} {self.rival_name} ({rival}){end[self.outcome]}."


def _alike(ours: float, rival: float | None) -> tuple[str, str]:
    """Format two numbers with the same decimals: four digits of the larger, or until they differ.

    Example:
        >>> _alike(55.0512, 51.3), _alike(0.46921, 0.47004), _alike(0.5, 1.0)
        (('55.05', '51.30'), ('0.4692', '0.4700'), ('0.5', '1.0'))
    """
    finite = [v for v in (ours, rival) if v is not None and math.isfinite(v)]
    largest = max(map(abs, finite), default=0.0)
    if largest >= 1e6 or largest < 1e-3 or min(map(abs, finite)) < 0.1 * largest:
        texts = [f"{v:.4g}" for v in finite]
    else:
        decimals = max(0, 3 - math.floor(math.log10(largest)))
        while True:
            texts = [f"{v:.{decimals}f}" for v in finite]
            if len(set(finite)) == len(set(texts)) or decimals > 9:
                break
            decimals += 1
        while all("." in t and t.endswith("0") for t in texts):
            texts = [t[:-1] for t in texts]
        texts = [t[:-1] for t in texts] if all(t.endswith(".") for t in texts) else texts
    shown = iter(texts)
    ours_text, rival_text = (
        next(shown) if v is not None and math.isfinite(v) else "–" for v in (ours, rival)
    )
    return ours_text, rival_text


def display_unit(unit: str) -> str:
    """Return a unit as it is printed: "" for a pure number, `°C` for `degC`.

    Example:
        >>> display_unit("1"), display_unit("degC"), display_unit("m s-1")
        ('', '°C', 'm s-1')
    """
    symbols = {"1": "", "degC": "°C", "deg_C": "°C", "celsius": "°C", "degree_Celsius": "°C"}
    return symbols.get(unit, symbols.get(unit.lower(), unit))


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

    def _repr_html_(self) -> str:
        """Return verdict, summary, tables and metrics for a notebook."""
        verdict = [self.verdict.sentence] if self.verdict else []
        metrics = [
            [name, v, display_unit(self.units.get(name, ""))] for name, v in self.metrics.items()
        ]
        tables = [html_table(t.columns, t.rows, t.title) for t in self.tables[:1]]
        tables += [html_table(["metric", "value", "unit"], metrics)] if metrics else []
        return html_page(self.title, [*verdict, *self.summary], *tables)

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
                f"not a results file ({error.errors()[0]['msg']})",
                where=str(path),
                fix=f"scitoolkit evaluate {directory}",
            ) from None


def number(value: Any) -> float | None:
    """Convert `value` to a JSON-safe float: None for NaN and infinities."""
    value = float(value)
    return value if value == value and abs(value) != float("inf") else None
