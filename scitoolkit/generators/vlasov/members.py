"""Vlasov generators: waves and instabilities with known linear rates, and a sheath."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from scitoolkit.core.results import Figure, Lines, Series
from scitoolkit.generators.base import Check
from scitoolkit.generators.vlasov.base import (
    LENGTH,
    SPEED,
    VlasovGenerator,
    maxwellian,
    perturbed,
)
from scitoolkit.generators.vlasov.ions import IonPlasma

if TYPE_CHECKING:
    from scitoolkit.generators.vlasov.dispersion import Beam
    from scitoolkit.generators.vlasov.simulation import Species, Wall

LINEAR = 1e-3
"""Amplitude above which a wave traps particles and is not damped by the linear rate."""
LEAST_DAMPED = 0.4
"""Wavenumber below which a Langmuir wave outlasts the measurement of an ion-acoustic wave."""
WAVE = VlasovGenerator.parameters


class BeamWave(VlasovGenerator):
    """Base class of electron waves in Maxwellian beams, with rates from linear theory."""

    @abstractmethod
    def beams(self) -> Sequence[Beam]:
        """Return the beams of the unperturbed plasma; their strengths sum to 1."""

    def species(self) -> Sequence[Species]:
        """Return electrons with a density wave."""
        from scitoolkit.generators.vlasov.simulation import Species

        def distribution(v: Any) -> Any:
            return sum(b.strength * maxwellian(v, b.drift, b.thermal) for b in self.beams())

        initial = perturbed(distribution, self.wavenumber, self.amplitude)
        return [Species(initial, self.v_max, collision_frequency=self.collision_frequency)]

    def exact_root(self) -> complex | None:
        """Return the root of the largest growth rate."""
        from scitoolkit.generators.vlasov.dispersion import least_damped

        return least_damped(self.wavenumber, self.beams())

    def fastest(self) -> float:
        """Return the largest sum of drift and thermal speed."""
        return max(beam.drift + beam.thermal for beam in self.beams())


class Landau(BeamWave):
    """Landau damping of a Langmuir wave in a Maxwellian plasma."""

    name: Literal["vlasov_landau"] = "vlasov_landau"
    damped: ClassVar[bool] = True

    def beams(self) -> Sequence[Beam]:
        """Return electrons at rest."""
        from scitoolkit.generators.vlasov.dispersion import Beam

        return [Beam(1.0, 0.0, 1.0)]

    def exact_root(self) -> complex | None:
        """Return the least damped root."""
        from scitoolkit.generators.vlasov.dispersion import least_damped

        return least_damped(self.wavenumber, self.beams(), oscillating=True)

    def checks(self, frames: Any) -> Sequence[Check]:
        """Return damping rate and frequency, in the linear regime."""
        return () if self.amplitude > LINEAR else super().checks(frames)


class TwoStream(BeamWave):
    """Two-stream instability of two equal, opposite electron beams, up to saturation.

    Attributes:
        drift: speed of each beam.
        thermal: thermal speed of each beam.
    """

    name: Literal["vlasov_two_stream"] = "vlasov_two_stream"
    parameters: ClassVar[Mapping[str, str]] = {**WAVE, "drift": SPEED, "thermal": SPEED}

    wavenumber: Annotated[PositiveFloat, Field(le=10)] = 0.2
    amplitude: Annotated[PositiveFloat, Field(lt=1)] = 1e-7
    v_max: PositiveFloat = 10.0
    duration: PositiveFloat = 80.0
    drift: PositiveFloat = 3.0
    thermal: PositiveFloat = 1.0

    def beams(self) -> Sequence[Beam]:
        """Return electrons in two beams."""
        from scitoolkit.generators.vlasov.dispersion import Beam

        return [Beam(0.5, s * self.drift, self.thermal) for s in (1, -1)]

    def exact_root(self) -> complex | None:
        """Return the root of the largest growth rate, or None if the plasma is stable."""
        exact = super().exact_root()
        return exact if exact is not None and exact.imag > 0.02 else None


class BumpOnTail(BeamWave):
    """Bump-on-tail instability: a weak fast beam drives a Langmuir wave.

    Attributes:
        drift: speed of the beam.
        thermal: thermal speed of the beam.
        share: fraction of the electrons that are in the beam.
    """

    name: Literal["vlasov_bump_on_tail"] = "vlasov_bump_on_tail"
    parameters: ClassVar[Mapping[str, str]] = {
        **WAVE,
        "drift": SPEED,
        "thermal": SPEED,
        "share": "1",
    }

    wavenumber: Annotated[PositiveFloat, Field(le=10)] = 0.25
    amplitude: Annotated[PositiveFloat, Field(lt=1)] = 1e-6
    v_max: PositiveFloat = 9.0
    duration: PositiveFloat = 60.0
    drift: PositiveFloat = 4.5
    thermal: PositiveFloat = 0.5
    share: Annotated[PositiveFloat, Field(lt=1)] = 0.1

    def beams(self) -> Sequence[Beam]:
        """Return electrons at rest and in the beam."""
        from scitoolkit.generators.vlasov.dispersion import Beam

        return [Beam(1 - self.share, 0.0, 1.0), Beam(self.share, self.drift, self.thermal)]


class IonAcoustic(IonPlasma):
    """Landau damping of an ion-acoustic wave, mostly by the ions.

    The electrons start in equilibrium with the slow field of the ions, which hardly excites a
    Langmuir wave.
    """

    name: Literal["vlasov_ion_acoustic"] = "vlasov_ion_acoustic"
    parameters: ClassVar[Mapping[str, str]] = {**WAVE, **IonPlasma.parameters}
    damped: ClassVar[bool] = True

    amplitude: Annotated[PositiveFloat, Field(lt=1)] = 1e-3
    cells_x: Annotated[int, Field(ge=2)] = 8
    cells_v: Annotated[int, Field(ge=16, multiple_of=16)] = 192
    duration: PositiveFloat = 130.0
    mass_ratio: Annotated[float, Field(ge=20)] = 25.0
    ion_temperature: Annotated[float, Field(ge=0.01, le=1)] = 0.2

    def densities(self) -> tuple[float, float]:
        """Return the electrons' linear response to a fixed ion density wave, and that wave."""
        # Electrons in equilibrium with a potential phi have n_e = phi, and k^2 phi = n_i - n_e.
        return self.amplitude / (1 + self.wavenumber**2), self.amplitude

    def exact_root(self) -> complex | None:
        """Return the ion-acoustic root, or None if a Langmuir wave lasts as long."""
        from scitoolkit.generators.vlasov.dispersion import ion_acoustic

        if self.wavenumber < LEAST_DAMPED:
            return None
        return ion_acoustic(self.wavenumber, self.mass_ratio, self.ion_temperature)

    def rate_times(self) -> tuple[float, float]:
        """Return the times of the ions' phase mixing and of the electrons' recurrence.

        On a grid of v a phase-mixed wave recurs near 2 pi / (k dv).
        """
        spacing = 2 * self.v_max / self.cells_v
        echo = 0.85 * 2 * math.pi / (self.wavenumber * spacing)
        return 2 / (self.wavenumber * self.ion_speed()), echo

    def checks(self, frames: Any) -> Sequence[Check]:
        """Return damping rate and frequency, in the linear regime."""
        return () if self.amplitude > LINEAR else super().checks(frames)

    def rate_tolerance(self) -> float:
        """Return 3 % of the rate, 10 % with degree 1."""
        exact = self.exact_root()
        share = 0.1 if self.degree == 1 else 0.03
        return share * abs(exact.imag) if exact else super().rate_tolerance()


class Sheath(IonPlasma):
    """Sheath of electrons and ions between absorbing walls that charge up.

    Attributes:
        size: distance between the walls.
    """

    name: Literal["vlasov_sheath"] = "vlasov_sheath"
    parameters: ClassVar[Mapping[str, str]] = {"size": LENGTH, **IonPlasma.parameters}
    equations: ClassVar[str] = f"{IonPlasma.equations}, absorbing walls"

    size: PositiveFloat = 64.0
    cells_x: Annotated[int, Field(ge=2)] = 128
    cells_v: Annotated[int, Field(ge=16, multiple_of=16)] = 96
    duration: PositiveFloat = 50.0

    def length(self) -> float:
        """Return the distance between the walls."""
        return self.size

    def walls(self) -> Wall:
        """Return absorbing walls."""
        return "absorbing"

    def ion_v_max(self) -> float:
        """Return a speed above that of ions that the sheath accelerates."""
        return self.v_max * (max(self.ion_temperature, 1.0) / self.mass_ratio) ** 0.5

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return figures of the final profiles, the field energy and f."""
        last = frames.isel(time=-1)
        series = [
            Series(label=label, y=last[name].values.tolist())
            for name, label in (("n", "electrons"), ("n_ions", "ions"), ("E", "field"))
        ]
        profiles = Lines(
            title=f"{self.name}: end of the first sample",
            x=frames["x"].values.tolist(),
            x_label=f"x ({LENGTH})",
            y_label="density, field",
            series=series,
        )
        return [profiles, *super().figures(frames)]
