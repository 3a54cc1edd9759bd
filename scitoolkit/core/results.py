"""Results of an evaluation as plain data: tables, and figures described but not drawn.

A domain writes a `Results` into its run directory as `results.json` (small numbers) and, for
gridded fields, `results.nc` beside it; the report and the command line read only these. So a new
domain gets its report without a line of plotting code, and a report can be drawn again years
later without the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import write_atomic

FILE_NAME = "results.json"
FIELDS_NAME = "results.nc"


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class Table(_Part):
    """A table: `rows[i][j]` belongs to `columns[j]`; units stand in the column's name."""

    title: str
    columns: list[str]
    rows: list[list[float | int | str | None]]
    note: str = ""
    best: Literal["min", "max"] | None = None
    """Whether the smallest or the largest number of each numeric column is marked."""


Role = Literal["main", "baseline", "reference"]
"""Place of a line in a figure: ours, a baseline, or the truth."""


class Series(_Part):
    """One line (or one row of bars) of a figure; `low`/`high` draw a band around it."""

    label: str
    y: list[float | None]
    x: list[float] | None = None
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    role: Role = "main"
    style: Literal["line", "points"] = "line"
    """`points`: a cloud without a line, for what has no order along x."""


class Lines(_Part):
    """Lines over a common x axis."""

    kind: Literal["lines"] = "lines"
    title: str
    x: list[float]
    x_label: str
    y_label: str
    series: list[Series]
    log_x: bool = False
    log_y: bool = False
    note: str = ""


class Panel(_Part):
    """One map: a 2-D selection `variable[select]` of `results.nc`.

    Panels of the same `scale` share one colour scale; `diverging` centres it on zero.
    """

    variable: str
    select: dict[str, int] = {}
    label: str
    scale: str = "field"
    diverging: bool = False


class Maps(_Part):
    """Panels side by side; NaN is drawn as land (or as missing) in grey.

    With `animate`, the maps run through that dim of `results.nc`; panels do not select along it.
    """

    kind: Literal["maps"] = "maps"
    title: str
    panels: list[Panel]
    unit: str = ""
    columns: int = 3
    note: str = ""
    animate: str = ""


class Points(_Part):
    """Single points; series named in `joined` are also joined by a line, in the order given."""

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
    """One horizontal bar a label, the first on top."""

    kind: Literal["bars"] = "bars"
    title: str
    labels: list[str]
    values: list[float]
    x_label: str
    note: str = ""


class Scale(_Part):
    """One of several parallel axes: numbers, or the positions 0, 1, ... of `ticks`."""

    label: str
    ticks: list[str] = []
    log: bool = False


class Parallel(_Part):
    """Parallel coordinates: a line across all axes per row, coloured by `colour`.

    None leaves a gap where an axis does not apply; row `marked` is drawn strong.
    """

    kind: Literal["parallel"] = "parallel"
    title: str
    axes: list[Scale]
    rows: list[list[float | None]]
    colour: list[float]
    colour_label: str
    marked: int | None = None
    note: str = ""


class Diagram(_Part):
    """Boxes from left to right and arrows between them.

    Arrows that pass over a box, or that join neighbours a second time, are bent.
    """

    kind: Literal["diagram"] = "diagram"
    title: str
    boxes: list[str]
    arrows: list[tuple[int, int]]
    note: str = ""


Figure = Annotated[Lines | Maps | Points | Bars | Parallel | Diagram, Field(discriminator="kind")]


class Verdict(_Part):
    """Our figure of merit beside the best rival's: the first line of a report and of the tour.

    Attributes:
        quantity: what both numbers are, as in "RMSE over 8 leads".
        ours, rival: the two numbers, None where a rival was not run.
        rival_name: the rival, as in "damped anomaly".
        unit: unit of both, "" for a pure number.
        better: whether the smaller or the larger number is the better one.
        rate: the numbers may be divided (errors, times), else only subtracted (R², dB, accuracy).

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
    ours: float
    rival: float | None = None
    rival_name: str = ""
    unit: str = ""
    better: Literal["min", "max"] = "min"
    rate: bool = True

    @classmethod
    def among(
        cls, values: Mapping[str, float | None], ours: str, quantity: str, **settings: Any
    ) -> Verdict | None:
        """Return the verdict over the values of several methods, None where ours has none.

        Args:
            values: the quantity of each method, ours too.
            ours: the key of ours.
            quantity: what the values are.
            settings: other fields of `Verdict`.

        Example:
            >>> Verdict.among({"net": 1.0, "mean": 3.0, "last": 2.0}, "net", "RMSE").rival_name
            'last'
        """
        known = {name: value for name, value in values.items() if value is not None}
        if ours not in known:
            return None
        own = known.pop(ours)
        pick = max if settings.get("better") == "max" else min
        best = pick(known, key=lambda name: known[name]) if known else None
        return cls(
            quantity=quantity, ours=own, rival=None if best is None else known[best],
            rival_name=best or "", **settings,
        )  # fmt: skip

    @property
    def margin(self) -> str:
        """Ratio or difference to the rival, "" without one; above 1 x or 0 is better."""
        if self.rival is None:
            return ""
        worse, good = (self.rival, self.ours) if self.better == "max" else (self.ours, self.rival)
        if self.rate and self.ours > 0 and self.rival > 0:
            return f"{good / worse:.3g} x"
        return f"{good - worse:+.3g}"

    @property
    def wins(self) -> bool:
        """Whether ours is the better number, or there is no rival."""
        if self.rival is None:
            return True
        return self.ours < self.rival if self.better == "min" else self.ours > self.rival

    def shown(self, value: float | None) -> str:
        """Return one of the two numbers with its unit, a dash for None."""
        if value is None:
            return "–"
        return f"{value:.4g}" + (f" {self.unit}" if self.unit not in ("", "1") else "")

    @property
    def sentence(self) -> str:
        """The verdict in words, with units."""
        text = f"{self.quantity} {self.shown(self.ours)}"
        if self.rival is None:
            return f"{text}."
        word = "" if self.margin.startswith(("+", "-")) else " better" if self.wins else ""
        return f"{text}; {self.rival_name} {self.shown(self.rival)} ({self.margin}{word})."


class Results(_Part):
    """All that an evaluation found.

    Attributes:
        title: one line for the head of the report.
        verdict: our figure of merit beside the best rival's.
        summary: a few sentences, plain text, each a fact that the tables show.
        metrics: the figures of merit, name -> value, units in the name's suffix or `units`.
        units: unit of each metric that has one.
        tables: shown first in the report.
        figures: drawn by `scitoolkit.reporting`; the first one is to prove the verdict.
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
        """Write `results.json` into a run and its figures of merit, as metrics.json, to its model.

        Args:
            directory: the run directory.
            model: the folder of what was trained, as a surrogate is published from.
        """
        self.write(directory)
        text = json.dumps({"units": self.units, **self.metrics}, indent=1)
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
    """Return `value` as a JSON-safe float: None for NaN and infinities."""
    value = float(value)
    return value if value == value and abs(value) != float("inf") else None
