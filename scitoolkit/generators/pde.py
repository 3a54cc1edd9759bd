"""Generator `pde`: equations written as text, in a periodic box of one to three dims."""

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
from scitoolkit.core.suggest import nearest_name
from scitoolkit.generators.base import Generator, Sample
from scitoolkit.generators.pde_problems import PROBLEMS
from scitoolkit.generators.stepped import SpectralGenerator

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.etdrk4 import Step
    from scitoolkit.generators.spectral_system import SpectralSystem

TAIL = 1e-2
"""Largest spectrum of a field at the smallest scales over its maximum."""
BALANCE = 1e-10
"""Mean of a rate over its rms below which the mean of a field is conserved."""
DRIFT = 1e-8
"""Largest drift of a conserved mean, relative to the rms of the field."""


def _one_text(equations: Any) -> Any:
    """Return a list of equations as one text."""
    if isinstance(equations, list | tuple) and all(isinstance(e, str) for e in equations):
        return "; ".join(equations)
    return equations  # a text, or what the type refuses


class EquationsGenerator(SpectralGenerator):
    """Fields f(time, x, ...) of any equations in a periodic box, by their waves.

    Attributes:
        problem: name of a problem whose equations and settings are the defaults.
        equations: a list such as `dif(u,t) + u*dif(u,x) = nu*dif(u,x,x)`, one for each field, or
            one text with semicolons. A field without a derivative in time follows from a linear
            equation, such as that of a stream function.
        constants: {name: value}; a campaign may draw them, and `length`.
        dims: of space, one to three.
        length: period along each dim.
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
        str, BeforeValidator(_one_text, json_schema_input_type=str | list[str])
    ]
    constants: Mapping[str, FiniteFloat] = {}
    dims: Annotated[tuple[str, ...], Field(min_length=1, max_length=3)] = ("x",)
    length: PositiveFloat = 6.283185307179586
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
        """Take the keys that are not set from the problem.

        Raises:
            ConfigError: no problem of this name.
        """
        if not isinstance(data, Mapping) or not data.get("problem"):
            return data
        name = data["problem"]
        if name not in PROBLEMS:
            raise ValueError(
                f"no problem {name!r}; nearest: {nearest_name(str(name), list(PROBLEMS))}; "
                f"allowed: {', '.join(PROBLEMS)}"
            )
        defaults = dict(PROBLEMS[name])
        constants = {**defaults.get("constants", {}), **(data.get("constants") or {})}
        return {**defaults, **data, **({"constants": constants} if constants else {})}

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
        for key, names in (("initial", self.initial), ("amplitude", self.amplitude)):
            wrong = [n for n in names if n not in system.evolving]
            if wrong:
                raise ValueError(
                    f"{key}: {', '.join(wrong)} is not an evolving field; allowed: "
                    f"{', '.join(system.evolving)}"
                )
        return self

    @property
    def parameters(self) -> Mapping[str, str]:  # type: ignore[override]
        """{name: unit} of the constants and the length, which a campaign may draw."""
        return {**dict.fromkeys(self.constants, "1"), "length": "1"}

    @property
    def space(self) -> int:  # type: ignore[override]
        """Number of dims of space."""
        return len(self.dims)

    @property
    def unknowns(self) -> tuple[str, ...]:  # type: ignore[override]
        """Fields with a derivative in time."""
        return tuple(self.system().evolving)

    def with_parameters(self, values: Mapping[str, float]) -> Generator:
        """Return this generator with other constants or another length.

        Raises:
            ConfigError: a name is neither a constant nor `length`, or a value is invalid.
        """
        super().with_parameters({k: v for k, v in values.items() if k not in self.constants})
        own = {k: v for k, v in values.items() if k not in self.constants}
        constants = {**self.constants, **{k: v for k, v in values.items() if k in self.constants}}
        return type(self)(**{**dict(self), **own, "constants": constants})

    def value_of(self, parameter: str) -> float:
        """Return a constant, or the length."""
        return self.constants[parameter] if parameter in self.constants else self.length

    def system(self) -> SpectralSystem:
        """Return the equations as a spectral system.

        Raises:
            ConfigError: they cannot be solved.
        """
        from scitoolkit.generators.spectral_system import system_of

        texts = tuple(text.strip() for text in self.equations.split(";") if text.strip())
        return system_of(texts, tuple(self.dims), tuple(sorted(self.constants.items())))

    def start(self, seed: int) -> np.ndarray:
        """Return the spectrum of the initial state."""
        import numpy as np

        from scitoolkit.core.expressions import Names, compiled, parse

        rng, size = np.random.default_rng(seed), (self.cells,) * self.space
        points = np.meshgrid(*[self._points()] * self.space, indexing="ij", sparse=True)
        places = dict(zip(self.dims, points, strict=True))
        names = Names((), tuple(self.dims), dict(self.constants))
        rms = self.amplitude or ({} if self.initial else dict.fromkeys(self.unknowns, 1.0))
        fields = []
        for field in self.unknowns:
            values = np.zeros(size)
            if field in self.initial:
                function = compiled(parse(self.initial[field], names), {})
                with np.errstate(all="ignore"):
                    values = values + function({}, places)
            if rms.get(field):
                values = values + rms[field] * self._random(rng)
            if not np.isfinite(values).all():
                raise NumericalError(
                    f"the initial state of {field} is not finite",
                    where=f"generator {self.name}",
                    fix="an expression that is finite at all points, the first at 0",
                )
            fields.append(values)
        spectra = self.waves(np.stack(fields))
        return spectra if len(fields) > 1 else spectra[0]

    def _random(self, rng: np.random.Generator) -> np.ndarray:
        """Return waves of random amplitudes, the same on any grid, of mean 0 and rms 1."""
        import numpy as np

        count = 2 * self.longest + 1
        noise = rng.standard_normal((count,) * self.space) + 1j * rng.standard_normal(
            (count,) * self.space
        )
        angle = 2 * np.pi * np.arange(self.cells) / self.cells
        values = noise
        for _ in range(self.space):  # each product replaces the first axis by the last
            waves = np.exp(1j * np.outer(np.arange(-self.longest, self.longest + 1), angle))
            values = np.tensordot(values, waves, (0, 0))
        field = values.real - values.real.mean()
        return np.asarray(field / np.sqrt(np.mean(field**2)))

    def _points(self) -> np.ndarray:
        import numpy as np

        return self.length * np.arange(self.cells) / self.cells

    def largest(self) -> int:
        """Return the largest wavenumber that products of the fields do not alias onto."""
        return (self.cells - 1) // (self.system().degree + 1)

    def stepper(self) -> Step:
        """Return a function that advances the spectrum by one time step."""
        import numpy as np

        from scitoolkit.generators.etdrk4 import etdrk4

        system, single = self.system(), len(self.unknowns) == 1
        waves = system.waves(self.cells, self.length)
        rest = system.rate(self.cells, self.length, self.largest())
        linear = np.stack([system.symbol(row, waves) for row in system.evolving.values()])
        step = etdrk4(linear, self.time_step, rest)
        return (lambda v: step(v[None])[0]) if single else step

    def generate(self, seed: int) -> Sample:
        """Return the frames, and the drifts of the means that the equations conserve.

        Raises:
            NumericalError: the solution is not finite.
        """
        import numpy as np
        import xarray as xr

        from scitoolkit.generators.resolution import tail, unresolved

        start = self.points(self.start(seed)).reshape(-1, *(self.cells,) * self.space)
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.points(self.evolved(seed))
        values = values.reshape(self.frames, *start.shape)
        axes = tuple(range(-self.space, 0))
        drifts, missed = {}, []
        for number, field in enumerate(self.unknowns):
            own = values[:, number]
            if f"mean_{field}" in self.invariant_bounds():
                size = max(float(np.sqrt(np.mean(start[number] ** 2))), np.finfo(float).tiny)
                change = np.abs(own.mean(axes) - start[number].mean()).max()
                drifts[f"mean_{field}"] = float(change) / size
            share = max(tail(f, self.space, self.largest()) for f in (start[number], own))
            missed += [f"{field}: {t}" for t in unresolved(share, TAIL, f"cells={2 * self.cells}")]
        units = {"units": "1"}
        steps = np.arange(self.spinup + 1, self.spinup + 1 + self.frames)
        frames = xr.Dataset(
            {
                field: (("time", *self.dims), values[:, number].astype("float32"), units)
                for number, field in enumerate(self.unknowns)
            },
            {
                "time": ("time", self.time_step * self.interval * steps, units),
                **{d: (d, self._points(), {**units, "period": self.length}) for d in self.dims},
            },
            dict(self.constants),
        )
        return Sample(frames, drifts, missed=missed)

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bounds of the means that the equations conserve, found at random states."""
        import numpy as np

        system, cells = self.system(), 16
        waves = system.waves(cells, self.length)
        rest = system.rate(cells, self.length, cells // 2 - 1)
        rng, axes = np.random.default_rng(0), range(-self.space, 0)
        small = self.model_copy(update={"cells": cells, "longest": 1})
        states = np.stack([small._random(rng) + 0.5 for _ in self.unknowns])
        spectra = np.fft.rfftn(states, axes=axes)
        with np.errstate(all="ignore"):
            rates = rest(spectra)
        bounds = {}
        for number, (field, row) in enumerate(system.evolving.items()):
            total = rates[number] + system.symbol(row, waves) * spectra[number]
            values = np.fft.irfftn(total, (cells,) * self.space, axes)
            if abs(values.mean()) <= BALANCE * np.sqrt(np.mean(values**2)):
                bounds[f"mean_{field}"] = DRIFT
        return bounds

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return maps of the fields, in space and time for one dim, else of the last frame."""
        select = {} if self.space == 1 else {"time": -1, **dict.fromkeys(self.dims[2:], 0)}
        panels = [Panel(variable=f, label=f, select=select) for f in self.unknowns]
        return [Maps(title=f"{self.problem or 'pde'}, first sample", panels=panels)]
