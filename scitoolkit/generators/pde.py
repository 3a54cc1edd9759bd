"""Generator `pde`: equations written as text, in a box of one to three dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    FiniteFloat,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.results import Figure, Maps, Panel
from scitoolkit.generators.base import Sample
from scitoolkit.generators.equations_as_text import EquationsAsText, of_problem, one_text
from scitoolkit.generators.pde_problems import PROBLEMS
from scitoolkit.generators.stepped import SpectralGenerator

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.etdrk4 import Step
    from scitoolkit.generators.mirrored_box import MirroredBox
    from scitoolkit.generators.spectral_system import SpectralSystem

TAIL = 1e-2
"""Largest spectrum of a field at the smallest scales over its maximum."""
BALANCE = 1e-10
"""Mean of a rate over its rms below which the mean of a field is conserved."""
EDGE = 1e-9
"""Largest value at a wall, relative to that of the field, that counts as zero."""
DRIFT = 1e-8
"""Largest drift of a conserved mean, relative to the rms of the field."""


class EquationsGenerator(EquationsAsText, SpectralGenerator):
    """Fields f(time, x, ...) of any equations in a periodic or walled box, by their waves.

    Attributes:
        problem: name of a problem whose equations and settings are the defaults.
        equations: a list such as `dif(u,t) + u*dif(u,x) = nu*dif(u,x,x)`, one for each field, or
            one text with semicolons. A field without a derivative in time follows from a linear
            equation, such as that of a stream function.
        constants: {name: value}; a campaign may draw them, and `length`.
        dims: of space, one to three.
        length: of the box along each dim, the period or the distance of the walls.
        walls: {dim: {evolving field: `value` or `slope`}}: what is zero at both walls of the dim,
            the field or its derivative along the dim. Other dims are periodic.
        initial: {field: expression of dims and constants} of the initial state.
        amplitude: {field: rms} of random waves that are added at the start; of all evolving fields
            1 if neither `initial` nor this is set.
        longest: number of the longest waves along each dim of which random states consist.
        chaotic: whether errors grow until they are as large as the fields, see `tolerance`.
    """

    name: Literal["pde"] = "pde"
    scheme: ClassVar[str] = "Fourier pseudo-spectral (truncated by the degree of products), ETDRK4"
    reference: ClassVar[str] = "Kassam and Trefethen 2005, SIAM J. Sci. Comput. 26(4), 1214"
    requires: ClassVar[tuple[str, ...]] = ("sympy",)

    problem: str | None = None
    equations: Annotated[  # type: ignore[misc]
        str, BeforeValidator(one_text, json_schema_input_type=str | list[str])
    ]
    constants: Mapping[str, FiniteFloat] = {}
    dims: Annotated[tuple[str, ...], Field(min_length=1, max_length=3)] = ("x",)
    length: PositiveFloat = 6.283185307179586
    walls: Mapping[str, Mapping[str, Literal["value", "slope"]]] = {}
    cells: Annotated[int, Field(ge=16, multiple_of=2)] = 128
    time_step: PositiveFloat = 0.01
    interval: PositiveInt = 10
    initial: Mapping[str, str] = {}
    amplitude: Mapping[str, NonNegativeFloat] = {}
    longest: PositiveInt = 4
    chaotic: bool = False  # type: ignore[misc]

    @model_validator(mode="before")
    @classmethod
    def _of_problem(cls, data: Any) -> Any:
        """Take the keys that are not set from the problem."""
        return of_problem(data, PROBLEMS)

    @model_validator(mode="after")
    def _names_are_those_of_the_equations(self) -> EquationsGenerator:
        """Refuse equations that cannot be solved, and initial states of other fields."""
        from scitoolkit.core.expressions import Names, parse

        reserved = [n for n in (*self.dims, *self.constants) if n in ("t", "time")]
        named = (*self.dims, *self.constants)
        if reserved or len(set(named)) < len(named):
            raise ValueError("dims and constants must have distinct names other than t and time")
        try:
            system = self.system()
            if "time" in (*system.evolving, *system.following):
                raise ConfigError("a field cannot be named time, the dim of the frames")
            for field, text in self.initial.items():
                parse(text, Names((), tuple(self.dims), dict(self.constants)), f"initial.{field}")
        except ConfigError as error:
            raise ValueError(str(error)) from None
        self._refuse_walls(system)
        for key, names in (("initial", self.initial), ("amplitude", self.amplitude)):
            wrong = [n for n in names if n not in system.evolving]
            if wrong:
                raise ValueError(
                    f"{key}: {', '.join(wrong)} is not an evolving field; allowed: "
                    f"{', '.join(system.evolving)}"
                )
        return self

    def _refuse_walls(self, system: SpectralSystem) -> None:
        """Raise ValueError for walls of which images do not solve the equations."""
        import numpy as np

        fields = list(system.evolving)
        for dim, at in self.walls.items():
            if dim not in self.dims or set(at) != set(fields):
                raise ValueError(
                    f"walls.{dim} of {', '.join(at) or 'no field'}; allowed: dims "
                    f"{', '.join(self.dims)}, each with value or slope of {', '.join(fields)}"
                )
        if not self.walls:
            return
        axes, signs = range(-self.space, 0), self._signs()
        box, whole = self._rates_of_random_states(system)
        _, rates = self._rates_of_random_states(system.without_coordinates())
        for number, field in enumerate(system.evolving):
            for axis, dim in enumerate(self.dims):
                local = box.inside(whole[number] - rates[number])
                ends = np.abs(np.take(local, (0, -1), axis)).max()
                odd = dim in self.walls and signs[number, axis] < 0
                if odd and not ends <= EDGE * np.abs(whole[number]).max():
                    raise ValueError(
                        f"walls: terms with coordinates in the rate of {field} are {ends:.3g} at a "
                        f"wall of {dim}; allowed: 0, as walls.{dim}.{field} is value; fix: a "
                        f"factor sin({np.pi / self.length:.12g}*{dim}), or another field, as for "
                        "walls of value A"
                    )
        spectra = np.fft.rfftn(rates, axes=axes)
        other = np.fft.irfftn(box.symmetric(spectra, signs), box.sizes, axes)
        for number, field in enumerate(system.evolving):
            size = np.sqrt(np.mean(rates[number] ** 2))
            if not np.abs(other[number] - rates[number]).max() <= BALANCE * size:
                raise ValueError(
                    f"walls: the rate of {field} has not the symmetry of the walls, so that "
                    "images behind them do not solve the equations; allowed: terms that are odd at "
                    "the walls for a field of value 0, even for one of slope 0; fix: other walls, "
                    "or a solver of another package as a generator"
                )

    def box(self) -> MirroredBox:
        """Return the points of the box and of its images behind the walls."""
        from scitoolkit.generators.mirrored_box import MirroredBox

        return MirroredBox(self.cells, self.length, tuple(d in self.walls for d in self.dims))

    def _signs(self) -> np.ndarray:
        """Return (fields, dims), -1 where a field is zero at the walls of a dim, else 1."""
        import numpy as np

        at = [[self.walls.get(d, {}).get(f) for d in self.dims] for f in self.unknowns]
        return np.array([[-1 if kind == "value" else 1 for kind in row] for row in at])

    def sizes(self) -> tuple[int, ...]:
        """Return the number of points of spectra along each dim, with images behind walls."""
        return self.box().sizes

    def points(self, spectra: np.ndarray) -> np.ndarray:
        """Return values at the points of the box, those of both walls included."""
        return self.box().inside(super().points(spectra))

    def waves(self, values: np.ndarray) -> np.ndarray:
        """Return the spectra of fields and their images, the inverse of `points`."""
        shape = (-1, *values.shape[values.ndim - self.space :])
        extended = self.box().extended(values.reshape(shape), self._signs())
        return super().waves(extended.reshape(*values.shape[: -self.space], *extended.shape[1:]))

    @property
    def space(self) -> int:  # type: ignore[override]
        """Number of dims of space."""
        return len(self.dims)

    @property
    def unknowns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Fields with a derivative in time."""
        return tuple(self.system().evolving)

    def system(self) -> SpectralSystem:
        """Return the equations as a spectral system.

        Raises:
            ConfigError: they cannot be solved.
        """
        from scitoolkit.generators.spectral_system import system_of

        return system_of(self.texts(), tuple(self.dims), self.sorted_constants())

    def start(self, seed: int) -> np.ndarray:
        """Return the spectrum of the initial state."""
        import numpy as np

        from scitoolkit.core.expressions import Names, compiled, parse

        rng, box = np.random.default_rng(seed), self.box()
        own = [self._coordinate(d)[0] for d in self.dims]
        size = tuple(points.size for points in own)
        sparse = np.meshgrid(*own, indexing="ij", sparse=True)
        places = dict(zip(self.dims, sparse, strict=True))
        names = Names((), tuple(self.dims), dict(self.constants))
        rms = self.amplitude or ({} if self.initial else dict.fromkeys(self.unknowns, 1.0))
        fields = []
        for number, field in enumerate(self.unknowns):
            values = np.zeros(size)
            if field in self.initial:
                function = compiled(parse(self.initial[field], names), {})
                with np.errstate(all="ignore"):
                    values = values + function({}, places)
                if np.isfinite(values).all():
                    self._refuse_edges(field, values)
            if rms.get(field):
                values = values + rms[field] * box.inside(self._random(rng, number))
            if not np.isfinite(values).all():
                raise NumericalError(
                    f"the initial state of {field} is not finite",
                    where=f"generator {self.name}",
                    fix="an expression that is finite at all points, the first at 0",
                )
            fields.append(values)
        spectra = self.waves(np.stack(fields))
        return spectra if len(fields) > 1 else spectra[0]

    def _refuse_edges(self, field: str, values: np.ndarray) -> None:
        """Raise NumericalError if an initial state is not zero at walls where the field is."""
        import numpy as np

        for axis, dim in enumerate(self.dims):
            ends = np.abs(np.take(values, (0, -1), axis)).max()
            if self.walls.get(dim, {}).get(field) == "value" and not (
                ends <= EDGE * np.abs(values).max()
            ):
                raise NumericalError(
                    f"the initial state of {field} is {ends:.3g} at a wall of {dim}",
                    where=f"generator {self.name}",
                    allowed=f"0, as walls.{dim}.{field} is value",
                    fix=f"an expression with a factor sin({np.pi / self.length:.12g}*{dim})",
                )

    def _random(self, rng: np.random.Generator, field: int) -> np.ndarray:
        """Return waves of random amplitudes, the same on any grid, of mean 0 and rms 1.

        They have the symmetries of a field, given by its number, and those of images.
        """
        import numpy as np

        box, count = self.box(), 2 * self.longest + 1
        noise = rng.standard_normal((count,) * self.space) + 1j * rng.standard_normal(
            (count,) * self.space
        )
        values = noise
        for size in box.sizes:  # each product replaces the first axis by the last
            angle = 2 * np.pi * np.arange(size) / size
            waves = np.exp(1j * np.outer(np.arange(-self.longest, self.longest + 1), angle))
            values = np.tensordot(values, waves, (0, 0))
        real = values.real
        if self.walls:
            spectra = box.symmetric(np.fft.rfftn(real)[None], self._signs()[[field]])[0]
            real = np.fft.irfftn(spectra, box.sizes, range(self.space))
        real = real - real.mean()
        return np.asarray(real / np.sqrt(np.mean(real**2)))

    def largest(self) -> int:
        """Return the largest wavenumber that products of the fields do not alias onto."""
        return (self.cells - 1) // (self.system().degree + 1)

    def stepper(self) -> Step:
        """Return a function that advances the spectrum by one time step."""
        import numpy as np

        from scitoolkit.generators.etdrk4 import etdrk4

        system, single = self.system(), len(self.unknowns) == 1
        box, signs = self.box(), self._signs()
        rest = system.rate(box, self.largest(), signs)
        linear = np.stack([system.symbol(row, box.waves()) for row in system.evolving.values()])
        step = etdrk4(linear, self.time_step, rest)
        if self.walls:  # rounding would grow in what has not the symmetry
            free, step = step, lambda v: box.symmetric(free(v), signs)
        return (lambda v: step(v[None])[0]) if single else step

    def generate(self, seed: int) -> Sample:
        """Return the frames, and the drifts of the means that the equations conserve.

        Raises:
            NumericalError: the solution is not finite.
        """
        import numpy as np
        import xarray as xr

        from scitoolkit.generators.mirrored_box import multiples
        from scitoolkit.generators.resolution import tail, unresolved

        box, signs = self.box(), self._signs()
        start = self.points(self.start(seed))
        start = start.reshape(-1, *start.shape[-self.space :])
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.points(self.evolved(seed))
        values = values.reshape(self.frames, *start.shape)
        axes = tuple(range(-self.space, 0))
        units_of_waves = multiples(box.walled) if self.walls else []
        largest = self.largest() * (2 if self.walls else 1)
        drifts, missed = {}, []
        for number, field in enumerate(self.unknowns):
            first, own = (
                box.extended(f, np.repeat(signs[[number]], len(f), 0))
                for f in (start[[number]], values[:, number])
            )
            if f"mean_{field}" in self.invariant_bounds():
                rms = (np.sqrt(np.mean(f**2, axes)).max() for f in (first, own))
                size = max(*map(float, rms), np.finfo(float).tiny)  # a force may start from zero
                change = np.abs(own.mean(axes) - first.mean()).max()
                drifts[f"mean_{field}"] = float(change) / size
            share = max(tail(f, self.space, largest, units_of_waves) for f in (first, own))
            missed += [f"{field}: {t}" for t in unresolved(share, TAIL, f"cells={2 * self.cells}")]
        units = {"units": "1"}
        with np.errstate(over="ignore"):  # infinity, which `sample` refuses
            stored = values.astype("float32")
        steps = np.arange(self.spinup + 1, self.spinup + 1 + self.frames)
        frames = xr.Dataset(
            {
                field: (("time", *self.dims), stored[:, number], units)
                for number, field in enumerate(self.unknowns)
            },
            {
                "time": ("time", self.time_step * self.interval * steps, units),
                **{d: (d, *self._coordinate(d)) for d in self.dims},
            },
            dict(self.constants),
        )
        return Sample(frames, drifts, missed=missed)

    def _coordinate(self, dim: str) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the points along a dim, and their attributes."""
        import numpy as np

        points = self.length * np.arange(self.cells + (dim in self.walls)) / self.cells
        period = {} if dim in self.walls else {"period": self.length}
        return points, {"units": "1", **period}

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bounds of the means that the equations conserve, found at random states."""
        import numpy as np

        system = self.system()
        _, rates = self._rates_of_random_states(system, self._signs())
        bounds = {}
        for values, sign, field in zip(rates, self._signs(), system.evolving, strict=True):
            balanced = abs(values.mean()) <= BALANCE * np.sqrt(np.mean(values**2))
            if balanced and (sign > 0).all():  # the mean of an odd field is always zero
                bounds[f"mean_{field}"] = DRIFT
        return bounds

    def _rates_of_random_states(
        self, system: SpectralSystem, continued: np.ndarray | None = None
    ) -> tuple[MirroredBox, np.ndarray]:
        """Return a small box and the rates (fields, points...) of random states in it.

        Args:
            system: the equations.
            continued: signs by which rates with coordinates continue behind walls, if they do.
        """
        import numpy as np

        cells = 16
        # Of a single wave, terms of another symmetry may cancel each other: sin**2 + cos**2.
        small = self.model_copy(update={"cells": cells, "longest": 2})
        box, rng, axes = small.box(), np.random.default_rng(0), range(-self.space, 0)
        rest = system.rate(box, cells, continued)  # no wave is lost, so that points are exact
        # Of equal means, exchanges such as u - v would seem to conserve the mean of v.
        states = [
            small._random(rng, number) + rng.uniform(0.3, 0.7) * (signs > 0).all()
            for number, signs in enumerate(self._signs())
        ]
        spectra = np.fft.rfftn(np.stack(states), axes=axes)
        with np.errstate(all="ignore"):
            rates = rest(spectra)
        linear = [system.symbol(row, box.waves()) for row in system.evolving.values()]
        return box, np.fft.irfftn(rates + np.stack(linear) * spectra, box.sizes, axes)

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return maps of the fields, in space and time for one dim, else of the last frame."""
        select = {} if self.space == 1 else {"time": -1, **dict.fromkeys(self.dims[2:], 0)}
        panels = [Panel(variable=f, label=f, select=select) for f in self.unknowns]
        return [Maps(title=f"{self.problem or 'pde'}, first sample", panels=panels)]
