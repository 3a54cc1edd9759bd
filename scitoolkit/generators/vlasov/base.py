"""Base class of the Vlasov generators: settings, frames, invariants, rates and figures."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Figure, Lines, Maps, Panel, Series
from scitoolkit.core.resume import FREE_ON_RESUME
from scitoolkit.generators.base import Accuracy, Check, Generator, Sample

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.vlasov.simulation import Simulation, Species, Wall

EDGE_SHARE = 1e-6
PERTURBATION = "f_perturbation"
ROUNDING = 1e-12
LENGTH, TIME, SPEED = "Debye length", "1/plasma frequency", "thermal speed"


class VlasovGenerator(Generator):
    """Base class of the Vlasov generators; a subclass defines the initial species.

    Attributes:
        wavenumber: of the perturbation, whose wavelength is the length of the box.
        amplitude: of the density perturbation.
        v_max: velocities are truncated at -v_max and v_max; a note states the fraction of particles
            at the edge if it is too large.
        cells_x: number of cells of x.
        cells_v: number of cells of v, a multiple of 16.
        degree: polynomial degree p.
        basis: serendipity or tensor.
        field: field equation, Ampère or Poisson.
        flux_v: `penalised` or `central`.
        spinup: time before the first frame; transients of a perturbation last about 10.
        duration: time from the first to the last frame.
        frames: number of frames, including the first and the last.
        damped: whether the wave is damped; its rate is then measured at peaks of the field energy.
        species_names: the first is that of `f`; the names are suffixes of the variables of the
            others.
        collision_frequency: of BGK collisions of each species with itself; linear theory then
            gives no rate to compare with.
        cfl: fraction of the largest stable time step.
        threads: number of threads of a simulation.
    """

    parameters: ClassVar[Mapping[str, str]] = {
        "wavenumber": f"1/{LENGTH}",
        "amplitude": "1",
    }
    equations: ClassVar[str] = (
        "f_t + v f_x + (q/m) E f_v = 0, E_t = -J (Vlasov-Ampère, 1X1V; ions at rest)"
    )
    scheme: ClassVar[str] = (
        "alias-free modal discontinuous Galerkin, exact integrals, upwind in x, SSP-RK3"
    )
    reference: ClassVar[str] = (
        "Juno, Hakim et al. 2018, J. Comput. Phys. 353, 110; Hakim, Juno SC20"
    )
    random: ClassVar[bool] = False
    damped: ClassVar[bool] = False
    species_names: ClassVar[Sequence[str]] = ("electrons",)

    wavenumber: Annotated[PositiveFloat, Field(le=10)] = 0.5
    amplitude: Annotated[PositiveFloat, Field(lt=1)] = 1e-4
    v_max: PositiveFloat = 6.0
    cells_x: Annotated[int, Field(ge=2)] = 32
    cells_v: Annotated[int, Field(ge=16, multiple_of=16)] = 128
    degree: Annotated[int, Field(ge=1, le=3)] = 2
    basis: Literal["serendipity", "tensor"] = "serendipity"
    field: Literal["ampere", "poisson"] = "ampere"
    flux_v: Literal["penalised", "central"] = "penalised"
    spinup: NonNegativeFloat = 0.0
    duration: PositiveFloat = 20.0
    frames: Annotated[int, Field(ge=2)] = 41
    collision_frequency: NonNegativeFloat = 0.0
    cfl: Annotated[PositiveFloat, Field(le=1)] = 0.9
    threads: Annotated[PositiveInt, FREE_ON_RESUME] = 1

    @abstractmethod
    def species(self) -> Sequence[Species]:
        """Return the initial species."""

    def exact_root(self) -> complex | None:
        """Return frequency + i growth rate of the wave by linear theory, or None."""
        return None

    def linear_root(self) -> complex | None:
        """Return `exact_root` without collisions, else None."""
        return None if self.collision_frequency else self.exact_root()

    def length(self) -> float:
        """Return the length of the box."""
        import math

        return 2 * math.pi / self.wavenumber

    def walls(self) -> Wall:
        """Return the type of both walls."""
        return "periodic"

    def rows_vy(self) -> int | None:
        """Return the number of cells of vy, None for 1X1V."""
        return None

    def simulation(self) -> Simulation:
        """Return the simulation in its initial state."""
        from scitoolkit.generators.vlasov.simulation import PhaseSpaceGrid, Simulation

        grid = PhaseSpaceGrid(
            self.length(),
            self.cells_x,
            self.cells_v,
            self.degree,
            self.basis,
            self.walls(),
            self.walls(),
            self.field,
            self.flux_v,
            self.rows_vy(),
        )
        return Simulation(self.species(), grid, threads=self.threads, cfl=self.cfl)

    def generate(self, seed: int) -> Sample:
        """Return f(time, x, v), E and moments, and the drifts of mass and energy."""
        import numpy as np

        del seed  # the simulation is deterministic
        simulation = self.simulation()
        start = _totals(simulation)
        times = self.spinup + np.linspace(0, self.duration, self.frames)
        simulation.advance(self.spinup)
        frames = [_frame(simulation, self.species_names)]
        for before, after in pairwise(times):
            simulation.advance(after - before)
            frames.append(_frame(simulation, self.species_names))
        end = _totals(simulation)
        bounds = self.invariant_bounds()
        drifts = {key: abs(end[key] / start[key] - 1) for key in start if key in bounds}
        share = simulation.edge_share()
        notes = (
            [
                f"{share:.1g} of a species is in the outermost cells of v: v_max {self.v_max:g} is "
                "too small"
            ]
            if share > EDGE_SHARE
            else []
        )
        return Sample(self._dataset(simulation, times, frames), drifts, notes)

    def accuracy(self, sample: Sample, seed: int) -> Accuracy:
        """Return the error of moments, field and f from runs on grids of half the cells."""
        from scitoolkit.generators.resolution import convergence_error

        coarser = [half for half in (self._scaled(2), self._scaled(4)) if half is not None]
        others = coarser or [finer for finer in [self._scaled(0.5)] if finer is not None]
        runs = [self, *others] if coarser else [*others, self]
        samples = [g.generate(seed) if g is not self else sample for g in runs]
        least = runs[-1]
        values = [least._compared(made.frames) for made in samples]
        ratios = [a.cells_v / b.cells_v for a, b in pairwise(runs)]
        error = convergence_error(values, ratios, 2 * self.degree)  # that of moments
        if not coarser:  # it is that of the finer run
            error *= ratios[0]
        how = "of half the cells" if coarser else "of twice the cells"
        method = f"moments, field and f ({self.cells_x} x {self.cells_v} cells) against runs {how}"
        return Accuracy(error, self.tolerance, method)

    def _scaled(self, ratio: float) -> VlasovGenerator | None:
        """Return these settings with larger cells, or None if there are too few cells."""
        rows = round(self.cells_v / ratio / 16) * 16
        changed = {"cells_x": round(self.cells_x / ratio), "cells_v": rows}
        if self.rows_vy():
            changed["cells_vy"] = round(self.model_dump()["cells_vy"] / ratio)
        if min(changed.values()) < 2 or (ratio > 1 and rows >= self.cells_v):
            return None
        return self.model_copy(update=changed)

    def _compared(self, frames: Any) -> dict[str, np.ndarray]:
        """Return the fields of frames on any grid, averaged over the cells of this one."""
        from scitoolkit.generators.resolution import remapped

        cells = {"x": self.cells_x, "v": self.cells_v, "vy": self.rows_vy() or 1}
        made = {}
        for name, variable in frames.data_vars.items():
            if "x" not in variable.dims:
                continue
            values = variable.values
            for axis, dim in enumerate(variable.dims):
                if dim != "time":
                    values = remapped(values, cells[str(dim).partition("_")[0]], axis)
            made[str(name)] = values
        return made

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return the bounds: rounding for mass, the error of RK3 for a conserved energy."""
        if self.walls() == "absorbing":
            return {}
        exact = self.field == "ampere" and self.degree >= 2
        return {"mass": ROUNDING, "energy": 1e-6 if exact else 1e-2}

    def checks(self, frames: Any) -> Sequence[Check]:
        """Return the check of the rate with linear theory; none if the run is too short."""
        exact = self.linear_root()
        if self._window(frames["instant"].values, frames["field_energy"].values, exact) is None:
            return ()
        assert exact is not None
        measured = self.measured_rate(frames)
        unit = "plasma frequency"
        rate = Check(self.rate_name, measured, exact.imag, self.rate_tolerance(), unit)
        if not self.damped:
            return [rate]
        frequency, _ = self._damping(frames)
        return [rate, Check("frequency", frequency, exact.real, 1e-2 * min(1, exact.real), unit)]

    @property
    def rate_name(self) -> str:
        """Name of the rate in the report."""
        return "damping rate" if self.damped else "growth rate"

    def rate_tolerance(self) -> float:
        """Return the largest expected error of the rate with these settings."""
        return 2e-3

    def measured_rate(self, frames: Any) -> float:
        """Return the growth rate measured in the field energy of a sample; negative if damped."""
        from scitoolkit.generators.vlasov.rates import growth_rate

        if self.damped:
            return self._damping(frames)[1]
        return growth_rate(frames["instant"].values, frames["field_energy"].values)

    def rate_times(self) -> tuple[float, float]:
        """Return the interval of times in which the rate of a damped wave is measured."""
        return 0.0, float("inf")

    def shown_fields(self, frames: Any) -> Any:
        """Return the frames with the perturbation of f, its difference from the mean over x."""
        deviation = frames["f"] - frames["f"].mean("x")
        attributes = {**frames["f"].attrs, "long_name": "f minus its mean over x"}
        return frames.assign({PERTURBATION: deviation.astype("f4").assign_attrs(attributes)})

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return figures of the field energy with linear theory, and maps of the perturbation."""
        import numpy as np

        t, energy = frames["instant"].values, frames["field_energy"].values
        every = max(1, t.size // 1000)
        series = [Series(label="field energy", y=energy[::every].tolist())]
        exact = self.linear_root()
        chosen = self._window(t, energy, exact)
        if exact is not None and chosen is not None:
            offset = np.median(np.log(energy[chosen]) - 2 * exact.imag * t[chosen])
            line = np.exp(np.minimum(offset + 2 * exact.imag * t, 300.0))[::every]
            shown = [float(v) if v <= 2 * energy.max() else None for v in line]
            series.append(
                Series(
                    label=f"linear theory: {self.rate_name} {exact.imag:.5f}",
                    y=shown,
                    role="reference",
                )
            )
        picked = np.unique(np.linspace(0, frames.sizes["time"] - 1, 3).astype(int))
        is_periodic = self.walls() != "absorbing"
        field, what = "f", ""
        if is_periodic:
            field, what = "perturbation of f", "f minus its mean over x. "
        panels = [
            # With two velocities f is shown in the first cell of x.
            Panel(
                variable=PERTURBATION if is_periodic else "f",
                label=f"time {float(frames['time'][i]):g}",
                select={"time": int(i), **({"x": 0} if self.rows_vy() else {})},
                scale=f"time {i}",
                diverging=is_periodic,
            )
            for i in picked
        ]
        return [
            Lines(
                title=f"{self.name}: field energy, first sample",
                x=t[::every].tolist(),
                x_label=f"time ({TIME})",
                y_label="field energy",
                log_y=True,
                series=series,
            ),
            Maps(
                title=f"{self.name}: {field} in phase space, first sample",
                panels=panels,
                note=f"{what}One colour scale per time.",
            ),
        ]

    def _damping(self, frames: Any) -> tuple[float, float]:
        """Return the frequency and the growth rate of a damped wave."""
        from scitoolkit.generators.vlasov.rates import damping_rate

        t, energy = frames["instant"].values, frames["field_energy"].values
        return damping_rate(t, energy, self.rate_times())

    def _window(
        self, t: np.ndarray, energy: np.ndarray, exact: complex | None
    ) -> np.ndarray | None:
        """Return the indices at which linear theory is matched to the measured energy."""
        from scitoolkit.generators.vlasov.rates import window

        try:
            return None if exact is None else window(t, energy, exact.imag > 0, self.rate_times())
        except DataError:  # a simulation too short for a rate still has a figure
            return None

    @model_validator(mode="after")
    def _drifts_are_inside(self) -> VlasovGenerator:
        """Refuse a plasma that exceeds the range of velocities."""
        need = self.fastest()
        if self.v_max <= need:
            raise ValueError(f"v_max {self.v_max:g}: particles reach {need:g}")
        return self

    def fastest(self) -> float:
        """Return the largest sum of drift and thermal speed."""
        return 1.0

    def _dataset(
        self, simulation: Simulation, times: np.ndarray, frames: Sequence[Mapping[str, np.ndarray]]
    ) -> Any:
        import numpy as np
        import xarray as xr

        about: dict[str, tuple[tuple[str, ...], str, str]] = {
            "E": (("time", "x"), "field unit", "electric field, cell averages"),
            "log_field_energy": (("time",), "1", "natural logarithm of the energy of the field"),
        }
        coordinates = {
            "time": ("time", times, {"units": TIME}),
            "x": ("x", simulation.centres_x(), {"units": LENGTH}),
            "instant": ("instant", np.array(simulation.times), {"units": TIME}),
        }
        two = simulation.grid.cells_vy is not None
        for number, species in enumerate(self.species_names):
            end = f"_{species}" if number else ""
            velocities = (f"vy{end}", f"v{end}") if two else (f"v{end}",)
            per = f"1/({LENGTH} ({SPEED})2)" if two else f"1/({LENGTH} {SPEED})"
            about |= {
                f"f{end}": (
                    ("time", "x", *velocities),
                    per,
                    f"distribution of {species}, cell averages",
                ),
                f"n{end}": (("time", "x"), f"1/{LENGTH}", f"density of {species}"),
                f"u{end}": (("time", "x"), SPEED, f"mean velocity of {species}"),
                f"T{end}": (("time", "x"), f"({SPEED})2", f"temperature over mass of {species}"),
            }
            if two:
                about |= {
                    f"uy{end}": (("time", "x"), SPEED, f"mean velocity of {species} along y"),
                    f"Ty{end}": (
                        ("time", "x"),
                        f"({SPEED})2",
                        f"temperature over mass of {species} along y",
                    ),
                }
                rows = simulation.centres_vy(number)
                coordinates[f"vy{end}"] = (f"vy{end}", rows, {"units": SPEED})
            coordinates[f"v{end}"] = (f"v{end}", simulation.centres_v(number), {"units": SPEED})
        data: dict[str, Any] = {
            name: (
                dims,
                np.array([frame[name] for frame in frames]),
                {"units": unit, "long_name": text},
            )
            for name, (dims, unit, text) in about.items()
        }
        # A dim named step would be interpreted as the times of the frames.
        data["field_energy"] = ("instant", np.array(simulation.field_energies), {"units": "1"})
        return xr.Dataset(data, coordinates)


def perturbed(
    shape: Callable[[Any], Any], wavenumber: float, amplitude: float
) -> Callable[[Any, Any], Any]:
    """Return the function (1 + amplitude cos(wavenumber x)) shape(v)."""

    def initial(x: Any, v: Any) -> Any:
        import numpy as np

        return (1 + amplitude * np.cos(wavenumber * x)) * shape(v)

    return initial


def maxwellian(v: Any, drift: float = 0.0, thermal: float = 1.0) -> Any:
    """Return the normal distribution of v.

    Example:
        >>> round(float(maxwellian(0.0)), 4)
        0.3989
    """
    import numpy as np

    return np.exp(-(((v - drift) / thermal) ** 2) / 2) / (np.sqrt(2 * np.pi) * thermal)


def _totals(simulation: Simulation) -> dict[str, float]:
    return {
        "mass": float(simulation.mass().sum()),
        "energy": simulation.kinetic_energy() + simulation.field_energy(),
    }


def _frame(simulation: Simulation, names: Sequence[str]) -> dict[str, np.ndarray]:
    import numpy as np

    energy = max(simulation.field_energy(), np.finfo(float).tiny)
    frame = {"E": simulation.field_averages().copy(), "log_field_energy": np.log(energy)}
    for number, species in enumerate(names):
        end = f"_{species}" if number else ""
        density, *pairs = simulation.moments(number)[:, :, 0] / np.sqrt(2)
        frame |= {f"f{end}": simulation.averages(number).copy(), f"n{end}": density}
        for axis, flux, square in zip(("", "y"), pairs[::2], pairs[1::2], strict=False):
            velocity = flux / density
            frame |= {
                f"u{axis}{end}": velocity,
                f"T{axis}{end}": square / density - velocity**2,
            }
    return frame
