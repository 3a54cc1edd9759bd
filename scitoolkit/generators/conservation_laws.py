"""Generator `conservation_laws`: equations in conservation form written as text, with shocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    FiniteFloat,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.results import Figure, Maps, Panel
from scitoolkit.generators.base import Accuracy, Sample
from scitoolkit.generators.conserved_problems import PROBLEMS
from scitoolkit.generators.equations_as_text import EquationsAsText, of_problem, one_text

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.conserved_system import ConservedSystem
    from scitoolkit.generators.finite_volumes import VolumeBox

DRIFT = 1e-10
"""Largest drift of a conserved mean, relative to the rms of the field."""
IMAGE = 1e-9
"""Largest difference of the flux of images from the image of a flux, relative to its size."""
SLOWER = 1e-6
"""Largest share by which a stated speed may be below that of the fluxes."""


class ConservationLawsGenerator(EquationsAsText):
    """Averages f(time, x, ...) over the cells of a box, of fields that obey conservation laws.

    Attributes:
        problem: name of a problem whose equations and settings are the defaults.
        equations: a list such as `dif(h,t) + dif(m,x) = 0`, one for each field, or one text with
            semicolons. Derivatives are of first or second order, of any expression, and are taken
            as written, which decides where shocks move.
        where: {name: expression} of names in the equations, which may use earlier names.
        speeds: {dim: expression} of the largest speed of a wave; unless given, it is computed from
            the fluxes in every cell, which takes several times longer.
        constants: {name: value}; a campaign may draw them, and `length`.
        dims: of space, one to three.
        length: of the box along each dim.
        walls: {dim: {field: `value` or `slope`}}: what is zero at both walls of the dim. Other dims
            are periodic or `open`.
        open: dims at whose ends fields continue with the values there.
        initial: {field: expression of dims and constants} of the initial state.
        amplitude: {field: rms} of random waves that are added at the start.
        longest: number of the longest waves along each dim of which random states consist.
        cells: along each dim.
        time_step: of the scheme.
        interval: number of steps between frames.
        spinup: number of frames that are discarded at the start.
        frames: number of frames.
    """

    name: Literal["conservation_laws"] = "conservation_laws"
    scheme: ClassVar[str] = "finite volumes, central scheme of second order, Runge-Kutta 3"
    reference: ClassVar[str] = "Kurganov and Tadmor 2000, J. Comput. Phys. 160, 241"
    requires: ClassVar[tuple[str, ...]] = ("sympy",)

    problem: str | None = None
    equations: Annotated[  # type: ignore[misc]
        str, BeforeValidator(one_text, json_schema_input_type=str | list[str])
    ]
    where: Mapping[str, str] = {}
    speeds: Mapping[str, str] = {}
    constants: Mapping[str, FiniteFloat] = {}
    dims: Annotated[tuple[str, ...], Field(min_length=1, max_length=3)] = ("x",)
    length: PositiveFloat = 6.283185307179586
    walls: Mapping[str, Mapping[str, Literal["value", "slope"]]] = {}
    open: tuple[str, ...] = ()
    initial: Mapping[str, str] = {}
    amplitude: Mapping[str, NonNegativeFloat] = {}
    longest: PositiveInt = 4
    cells: Annotated[int, Field(ge=16, multiple_of=4)] = 128
    time_step: PositiveFloat
    interval: PositiveInt = 10
    spinup: NonNegativeInt = 0
    frames: PositiveInt = 20

    @model_validator(mode="before")
    @classmethod
    def _of_problem(cls, data: Any) -> Any:
        """Take the keys that are not set from the problem."""
        return of_problem(data, PROBLEMS)

    @model_validator(mode="after")
    def _names_are_those_of_the_equations(self) -> ConservationLawsGenerator:
        """Refuse equations that are no conservation laws, and states of other fields."""
        from scitoolkit.core.expressions import Names, parse

        named = (*self.dims, *self.constants, *self.where)
        if {"t", "time"} & set(named) or len(set(named)) < len(named):
            raise ValueError("dims, constants and where: distinct names other than t and time")
        try:
            fields = list(self.system().laws)
            if {"time", *named} & set(fields):
                raise ConfigError("a field has the name of a dim or constant, or is named time")
            for field, text in self.initial.items():
                parse(text, Names((), tuple(self.dims), dict(self.constants)), f"initial.{field}")
        except ConfigError as error:
            raise ValueError(str(error)) from None
        for key, names in (("initial", self.initial), ("amplitude", self.amplitude)):
            wrong = [n for n in names if n not in fields]
            if wrong:
                raise ValueError(f"{key}: {', '.join(wrong)}; allowed: {', '.join(fields)}")
        if not (self.initial or self.amplitude):
            raise ValueError("no initial state; fix: initial.FIELD or amplitude.FIELD")
        for dim, at in self.walls.items():
            if dim not in self.dims or set(at) != set(fields) or dim in self.open:
                raise ValueError(
                    f"walls.{dim} of {', '.join(at) or 'no field'}; allowed: dims "
                    f"{', '.join(d for d in self.dims if d not in self.open)}, each with value or "
                    f"slope of {', '.join(fields)}"
                )
        if set(self.open) - set(self.dims):
            raise ValueError(f"open: {', '.join(self.open)}; allowed: {', '.join(self.dims)}")
        return self

    def system(self) -> ConservedSystem:
        """Return the equations as conservation laws.

        Raises:
            ConfigError: they are none.
        """
        from scitoolkit.generators.conserved_system import conserved_system_of

        return conserved_system_of(
            self.texts(),
            tuple(self.dims),
            self.sorted_constants(),
            tuple(self.where.items()),
            tuple(self.speeds.items()),
        )

    def box(self) -> VolumeBox:
        """Return the cells of the box and how fields continue beyond its ends."""
        from scitoolkit.generators.finite_volumes import VolumeBox

        edges: dict[str, Any] = {d: self._signs(d) for d in self.walls}
        edges |= dict.fromkeys(self.open, "open")
        return VolumeBox(tuple(self.dims), self.cells, self.length, edges)

    def _signs(self, dim: str) -> list[int]:
        """Return -1 for each field that is zero at the walls of a dim, else 1."""
        return [-1 if self.walls[dim][f] == "value" else 1 for f in self.system().laws]

    def start(self, seed: int) -> np.ndarray:
        """Return the averages (fields, cells...) of the initial state.

        Raises:
            NumericalError: it is not finite, waves are faster than stated, or the equations have no
                real speeds or not the symmetry of the walls there.
        """
        import numpy as np

        from scitoolkit.core.expressions import Names, compiled, parse

        rng, box = np.random.default_rng(seed), self.box()
        points = self.length * (np.arange(2 * self.cells) + 0.5) / (2 * self.cells)
        places = {d: box.along(axis, points) for axis, d in enumerate(self.dims)}
        names, fields = Names((), tuple(self.dims), dict(self.constants)), []
        for field in self.system().laws:
            values = np.zeros((2 * self.cells,) * len(self.dims))
            with np.errstate(all="ignore"):
                if field in self.initial:
                    values += compiled(parse(self.initial[field], names), {})({}, places)
            if self.amplitude.get(field):
                values += self.amplitude[field] * self._random(rng, field)
            if not np.isfinite(values).all():
                raise NumericalError(
                    f"the initial state of {field} is not finite",
                    where=f"generator {self.name}",
                    fix="an expression that is finite in the whole box",
                )
            fields.append(values)
        state = box.coarsened(np.stack(fields), 2)
        self._refuse_speeds(state)
        self._refuse_images(state)
        return state

    def _random(self, rng: np.random.Generator, field: str) -> np.ndarray:
        """Return random waves of rms 1, the same on any grid, with the symmetries of walls."""
        import numpy as np

        points = np.pi * (np.arange(2 * self.cells) + 0.5) / (2 * self.cells)
        waves = []
        for dim in self.dims:
            number = np.arange(self.longest + 1)[:, None]
            sine, cosine = np.sin(number[1:] * points), np.cos(number * points)
            if dim in self.walls:
                waves.append(sine if self.walls[dim][field] == "value" else cosine)
            else:
                sine, cosine = np.sin(2 * number[1:] * points), np.cos(2 * number * points)
                waves.append(np.concatenate([cosine, sine]))
        values = rng.standard_normal([len(w) for w in waves])
        for own in waves:  # each product replaces the first axis by the last
            values = np.tensordot(values, own, (0, 0))
        if not any(at[field] == "value" for at in self.walls.values()):
            values -= values.mean()
        return np.asarray(values / np.sqrt(np.mean(values**2)))

    def _refuse_speeds(self, state: np.ndarray) -> None:
        """Raise NumericalError if speeds are not real, or faster than stated."""
        import numpy as np

        system, places = self.system(), self.box().places()
        for axis, dim in enumerate(self.dims):
            with np.errstate(all="ignore"):
                stated = system.speed(axis, state, places)
                actual = system.fastest(axis, state, places)
            if not np.isfinite(actual).all():
                raise NumericalError(
                    f"waves along {dim} have no real speed in the initial state",
                    where=f"generator {self.name}",
                    fix="a positive density or depth, or the generator pde for smooth fields",
                )
            short = actual - stated
            if not (short <= SLOWER * np.max(actual)).all():
                raise NumericalError(
                    f"waves along {dim} are faster than stated by {np.nanmax(short):.3g}",
                    where=f"generator {self.name}",
                    fix=f"another speeds.{dim}, or none",
                )

    def _refuse_images(self, state: np.ndarray) -> None:
        """Raise NumericalError if images behind walls do not obey the equations."""
        import numpy as np

        system, box = self.system(), self.box()
        for wall in self.walls:
            signs = box.along(-1, np.ones(1))[None] * np.array(self._signs(wall)).reshape(
                -1, *[1] * len(self.dims)
            )
            for axis, dim in enumerate(self.dims):
                own, image = (system.flux(axis, s, box.places()) for s in (state, signs * state))
                expected = signs * own * (-1 if dim == wall else 1)
                if not np.abs(image - expected).max() <= IMAGE * np.abs(own).max():
                    raise NumericalError(
                        f"walls.{wall}: the flux along {dim} has not the symmetry of the walls",
                        where=f"generator {self.name}",
                        allowed="fluxes that change as images behind the walls do",
                        fix=f"value for what flows along {wall}, slope for others; or open",
                    )

    def averages(self, seed: int) -> np.ndarray:
        """Return the frames (frames, fields, cells...).

        Raises:
            NumericalError: the solution is not finite, or waves cross more than half a cell in a
                step.
        """
        import numpy as np

        from scitoolkit.generators.finite_volumes import stepper

        state, made = self.start(seed), []
        step = stepper(self.system(), self.box(), self.time_step)
        for number in range(1, (self.spinup + self.frames) * self.interval + 1):
            state = step(state)
            if not np.isfinite(state).all():
                raise NumericalError(
                    f"step {number}: waves cross more than half a cell, or a number is not finite",
                    where=f"generator {self.name}",
                    fix=f"time_step={self.time_step / 2:.3g}",
                )
            if number % self.interval == 0 and number > self.spinup * self.interval:
                made.append(state)
        return np.stack(made)

    def generate(self, seed: int) -> Sample:
        """Return the frames, and the drifts of the means that the equations conserve.

        Raises:
            NumericalError: see `averages`.
        """
        import numpy as np
        import xarray as xr

        system, box, start = self.system(), self.box(), self.start(seed)
        values, axes = self.averages(seed), tuple(range(-len(self.dims), 0))
        drifts = {}
        for place, field in enumerate(system.laws):
            if f"mean_{field}" in self.invariant_bounds():
                size = max(float(np.sqrt(np.mean(start[place] ** 2))), np.finfo(float).tiny)
                change = np.abs(values[:, place].mean(axes) - start[place].mean()).max()
                drifts[f"mean_{field}"] = float(change) / size
        units = {"units": "1"}
        ends = {
            d: {} if d in self.walls or d in self.open else {"period": self.length}
            for d in self.dims
        }
        numbers = np.arange(self.spinup + 1, self.spinup + 1 + self.frames)
        frames = xr.Dataset(
            {
                field: (("time", *self.dims), values[:, place].astype("float32"), units)
                for place, field in enumerate(system.laws)
            },
            {
                "time": ("time", self.time_step * self.interval * numbers, units),
                **{d: (d, box.centres(), {**units, **ends[d]}) for d in self.dims},
            },
            dict(self.constants),
        )
        return Sample(frames, drifts)

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bounds of the means that the equations conserve."""
        if self.open:
            return {}
        return {
            f"mean_{field}": DRIFT
            for field, law in self.system().laws.items()
            if law.source is None
            and not any(at[field] == "value" for at in self.walls.values())
            and not (self.walls and law.second)
        }

    def by_field(self, averages: np.ndarray, ratio: int = 1) -> dict[str, np.ndarray]:
        """Return {field: (frames, cells...)} of averages over `ratio` times larger cells."""
        count, *cells = averages.shape[1:]
        flat = self.box().coarsened(averages.reshape(-1, *cells), ratio)
        values = flat.reshape(-1, count, *flat.shape[1:])
        return {field: values[:, place] for place, field in enumerate(self.system().laws)}

    def accuracy(self, sample: Sample, seed: int) -> Accuracy:
        """Return the error of the run, from runs on a half and a quarter of the cells."""
        import numpy as np

        from scitoolkit.generators.resolution import convergence_error

        frames: Any = sample.frames
        ratios = [n for n in (1, 2, 4) if self.cells // n >= 8]
        averages = [np.stack([frames[f].values.astype(float) for f in self.system().laws], 1)]
        try:
            for n in ratios[1:]:
                averages.append(self.model_copy(update={"cells": self.cells // n}).averages(seed))
            runs = [
                self.by_field(values, ratios[-1] // n)
                for values, n in zip(averages, ratios, strict=True)
            ]
            error = convergence_error(runs, [2.0, 2.0], 2)
        except NumericalError:  # of a coarser run
            error = float("inf")
        larger = " and ".join(f"{self.cells // n}" for n in ratios[1:])
        method = f"fields over the run ({self.resolution()}) against runs on {larger} cells"
        return Accuracy(error, self.tolerance, method)

    def resolution(self) -> str:
        """Return the number of cells and the time step in words."""
        return f"{self.cells} cells along each dim, time step {self.time_step:g}"

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return maps of the fields, in space and time for one dim, else of the last frame."""
        select = {} if len(self.dims) == 1 else {"time": -1, **dict.fromkeys(self.dims[2:], 0)}
        fields = self.system().laws
        panels = [Panel(variable=f, label=f, select=select) for f in fields]
        return [Maps(title=f"{self.problem or self.name}, first sample", panels=panels)]
