"""Facts of the data of a surrogate: variables, dims, steps, parameters, species.

A model folder holds the facts of its training data (`facts.json`); `core.data_differences` compares
other data with them. `scitoolkit.io.facts` makes facts from files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.notebook import html_page, html_table
from scitoolkit.core.unit_conversion import conversion

log = get_logger(__name__)
VERSION = 1
MEANINGS = ("standard_name", "cell_methods", "positive")  # CF attributes of a variable
Role = Literal[
    "time",
    "latitude",
    "longitude",
    "vertical",
    "space",
    "simulation",
    "component",
    "node",
    "edge",
    "atom",
]
STEP_TOLERANCE = 1e-2
"""Relative difference of steps that counts as the same step: times stored with few digits."""


@dataclass(frozen=True)
class Step:
    """Distance of neighbouring coordinates.

    Attributes:
        number: median distance, positive.
        unit: `s` for dates, `month`, `third of a month`, else the unit of the coordinate.
        low: smallest distance.
        high: largest distance.

    Example:
        >>> str(Step(21600.0, "s", 21600.0, 21600.0))
        '6 hours'
    """

    number: float
    unit: str
    low: float
    high: float

    @property
    def is_even(self) -> bool:
        """Whether all distances are equal, up to the rounding of stored coordinates."""
        return self.high - self.low <= STEP_TOLERANCE * abs(self.number)

    def same(self, other: Step) -> bool:
        """Return whether two steps are equal; units must convert, and NaN is never equal."""
        scale = 1.0
        if self.unit != other.unit and (self.unit and other.unit):
            line = conversion(other.unit, self.unit)
            if line is None or line[1]:
                return False
            scale = line[0]
        return abs(other.number * scale - self.number) <= STEP_TOLERANCE * abs(self.number)

    def __str__(self) -> str:
        """Return the step with a readable unit."""
        if self.unit == "s":
            for size, name in ((86400, "day"), (3600, "hour"), (60, "minute")):
                if self.number >= size:
                    count = self.number / size
                    return f"{count:.6g} {name}{'' if count == 1 else 's'}"
        plural = "s" if self.unit == "month" and self.number != 1 else ""
        return f"{self.number:.6g} {self.unit}{plural}".strip()


@dataclass(frozen=True)
class Dim:
    """A dim: its role and its coordinate.

    Attributes:
        name: name in the file.
        role: what it means.
        size: number of entries.
        kind: whether its coordinate is dates, numbers, none, or other values such as text.
        units: unit of the numbers.
        calendar: calendar of the dates.
        direction: 1 increasing, -1 decreasing, 0 unknown.
        step: distance of neighbours; None for fewer than two entries.
        first: first number, or seconds since 1970 of the first date.
        last: last number, or seconds since 1970 of the last date.
        period: length after which the coordinate repeats, None if it does not.
        repeats: whether the last entry is the first one again.
        digest: digest of the relative positions of an uneven coordinate.
        positive: `up` or `down`, the direction in which a vertical coordinate increases; "" if the
            file does not state it.
    """

    name: str
    role: Role
    size: int
    kind: Literal["dates", "numbers", "none", "other"] = "none"
    units: str = ""
    calendar: str = ""
    direction: int = 0
    step: Step | None = None
    first: float = 0.0
    last: float = 0.0
    period: float | None = None
    repeats: bool = False
    digest: str = ""
    positive: str = ""


@dataclass(frozen=True)
class Var:
    """A variable: unit, kind of number, dims.

    Attributes:
        name: name in the file.
        units: unit, "" if the file states none.
        kind: kind of number.
        dims: its dims in the order of the file.
        role: its use: input, output, forcing, label, node, edge; "" if not stated.
        standard_name: CF standard name.
        cell_methods: CF method along time (`time: mean`), "" if not stated.
        positive: direction in which a flux counts as positive, `up` or `down`; "" if not stated.
        constant: whether it never changes in the training data.
        change: typical change in a step, None if not measured.
        magnitude: typical absolute value, None if not measured.
        shape: shape of one entry (components of a label or feature).
    """

    name: str
    units: str = ""
    kind: Literal["real", "integer", "complex", "other"] = "real"
    dims: tuple[str, ...] = ()
    role: str = ""
    standard_name: str = ""
    cell_methods: str = ""
    positive: str = ""
    constant: bool = False
    change: float | None = None
    magnitude: float | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class DataFacts:
    """Facts of data, stored with every model.

    Attributes:
        variables: variables in the order of their use.
        dims: dims of the variables.
        parameters: range and unit of each parameter of the simulations.
        mask: digest of the cells without values, "" without a mask.
        species: chemical species.
        labels: labels of atoms' frames and their units.
        version: version of this description.

    Example:
        >>> facts = DataFacts((Var("t", "K"),), ())
        >>> DataFacts.from_json(facts.to_json()) == facts
        True
    """

    variables: tuple[Var, ...] = ()
    dims: tuple[Dim, ...] = ()
    parameters: Mapping[str, tuple[float, float, str]] = field(default_factory=dict)
    mask: str = ""
    species: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION

    def to_json(self) -> dict[str, Any]:
        """Return JSON types."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """Return tables of variables, dims and parameters for a notebook."""
        variables = [[v.name, v.units, ", ".join(v.dims)] for v in self.variables]
        dims = [[d.name, d.role, d.units, d.size] for d in self.dims]
        parameters = [[name, *limits] for name, limits in self.parameters.items()]
        tables = (
            html_table(["variable", "unit", "dims"], variables),
            html_table(["dim", "role", "unit", "size"], dims),
            html_table(["parameter", "least", "largest", "unit"], parameters),
        )
        shown = [t for t, rows in zip(tables, (variables, dims, parameters), strict=True) if rows]
        return html_page("Facts of the data", (), *shown)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> DataFacts:
        """Return the facts of `to_json`.

        Raises:
            DataError: they were written by a newer version, or are damaged.
        """
        try:
            version = int(stored["version"])
            if version > VERSION:
                raise DataError(
                    f"facts of version {version}", allowed=f"up to {VERSION}", fix="a newer version"
                )
            dims = tuple(
                Dim(**{**d, "step": None if d["step"] is None else Step(**d["step"])})
                for d in stored["dims"]
            )
            variables = tuple(
                Var(**{**v, "dims": tuple(v["dims"]), "shape": tuple(v["shape"])})
                for v in stored["variables"]
            )
            parameters = {
                name: (float(low), float(high), str(unit))
                for name, (low, high, unit) in stored["parameters"].items()
            }
            labels = {str(name): str(unit) for name, unit in stored["labels"].items()}
            species = tuple(stored["species"])
            return cls(variables, dims, parameters, str(stored["mask"]), species, labels, version)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"damaged facts of the training data ({error})", fix="copy the model again"
            ) from None

    def dim(self, role: Role) -> Dim | None:
        """Return the first dim of a role."""
        return next((d for d in self.dims if d.role == role), None)

    def var(self, name: str) -> Var | None:
        """Return the variable of a name."""
        return next((v for v in self.variables if v.name == name), None)

    def meaning(self, name: str) -> dict[str, str]:
        """Return the CF attributes of a variable but its unit, for predictions of it.

        Example:
            >>> DataFacts((Var("t", "K", cell_methods="time: mean"),)).meaning("t")
            {'cell_methods': 'time: mean'}
        """
        variable = self.var(name)
        return {key: text for key in MEANINGS if (text := getattr(variable, key, ""))}

    def with_values(self, variables: Mapping[str, Mapping[str, Any]]) -> DataFacts:
        """Return the facts with measured ones: `constant`, `change`, `magnitude` by variable."""
        measured = tuple(replace(v, **variables.get(v.name, {})) for v in self.variables)
        return replace(self, variables=measured)
