"""The Vlasov generators: waves and instabilities whose linear rates are known, and a sheath."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveFloat

from scitoolkit.generators.base import Check
from scitoolkit.generators.vlasov.base import SPEED, VlasovGenerator, maxwellian, perturbed

if TYPE_CHECKING:
    from scitoolkit.generators.vlasov.dispersion import Beam
    from scitoolkit.generators.vlasov.simulation import Species, Wall

LINEAR = 1e-3
"""Amplitude beyond which a wave traps particles and is not damped as theory says."""
WAVE = VlasovGenerator.parameters


class BeamWave(VlasovGenerator):
    """Base of waves of electrons in Maxwellian beams, whose rates follow from linear theory."""

    @abstractmethod
    def beams(self) -> Sequence[Beam]:
        """Return the beams of the unperturbed plasma; their strengths sum to 1."""

    def species(self) -> Sequence[Species]:
        """Return the electrons with a wave of density."""
        from scitoolkit.generators.vlasov.simulation import Species

        def distribution(v: Any) -> Any:
            return sum(b.strength * maxwellian(v, b.drift, b.thermal) for b in self.beams())

        initial = perturbed(distribution, self.wavenumber, self.amplitude)
        return [Species(initial, self.v_max, collision_frequency=self.collision_frequency)]

    def exact_root(self) -> complex | None:
        """Return the root of largest growth."""
        from scitoolkit.generators.vlasov.dispersion import least_damped

        return least_damped(self.wavenumber, self.beams())

    def fastest(self) -> float:
        """Return the speed of a thermal particle of the fastest beam."""
        return max(beam.drift + beam.thermal for beam in self.beams())


class Landau(BeamWave):
    """Landau damping of a Langmuir wave in a Maxwellian plasma."""

    name: Literal["vlasov_landau"] = "vlasov_landau"
    rate_name: ClassVar[str] = "damping rate"

    def beams(self) -> Sequence[Beam]:
        """Return electrons at rest."""
        from scitoolkit.generators.vlasov.dispersion import Beam

        return [Beam(1.0, 0.0, 1.0)]

    def exact_root(self) -> complex | None:
        """Return the least damped root."""
        from scitoolkit.generators.vlasov.dispersion import least_damped

        return least_damped(self.wavenumber, self.beams(), oscillating=True)

    def measured_rate(self, frames: Any) -> float:
        """Return the rate from the peaks of the field energy."""
        from scitoolkit.generators.vlasov.rates import damping_rate

        return damping_rate(frames["instant"].values, frames["field_energy"].values)[1]

    def checks(self, frames: Any) -> Sequence[Check]:
        """Return damping rate and frequency, in the linear regime."""
        from scitoolkit.generators.vlasov.rates import damping_rate

        found, exact = list(super().checks(frames)), self.linear_root()
        if not found or exact is None or self.amplitude > LINEAR:
            return ()
        frequency, _ = damping_rate(frames["instant"].values, frames["field_energy"].values)
        return [*found, Check("frequency", frequency, exact.real, 1e-2, "plasma frequency")]


class TwoStream(BeamWave):
    """Two-stream instability of two equal, opposite electron beams, up to saturation.

    Attributes:
        drift: speed of each beam.
        thermal: spread of each beam.
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
        """Return the root of largest growth, None where there is no instability."""
        found = super().exact_root()
        return found if found is not None and found.imag > 0.02 else None


class BumpOnTail(BeamWave):
    """Bump-on-tail instability: a weak fast beam feeds a Langmuir wave.

    Attributes:
        drift: speed of the beam.
        thermal: spread of the beam.
        share: of the electrons that are in the beam.
    """

    name: Literal["vlasov_bump_on_tail"] = "vlasov_bump_on_tail"
    parameters: ClassVar[Mapping[str, str]] = {
        **WAVE, "drift": SPEED, "thermal": SPEED, "share": "1",
    }  # fmt: skip

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


class Sheath(VlasovGenerator):
    """Sheath of electrons and ions between absorbing walls that charge up.

    Attributes:
        size: distance of the walls.
        mass_ratio: of ions to electrons.
        ion_temperature: over that of the electrons.
    """

    name: Literal["vlasov_sheath"] = "vlasov_sheath"
    parameters: ClassVar[Mapping[str, str]] = {
        "size": "Debye length", "mass_ratio": "1", "ion_temperature": "1",
    }  # fmt: skip
    equations: ClassVar[str] = (
        "f_t + v f_x + (q/m) E f_v = 0 for electrons and ions, E_t = -J, absorbing walls"
    )

    size: PositiveFloat = 64.0
    mass_ratio: Annotated[float, Field(ge=1)] = 100.0
    ion_temperature: PositiveFloat = 1.0
    cells_x: Annotated[int, Field(ge=2)] = 64
    cells_v: Annotated[int, Field(ge=16, multiple_of=16)] = 64
    duration: PositiveFloat = 50.0

    def species(self) -> Sequence[Species]:
        """Return electrons and ions of uniform density."""
        from scitoolkit.generators.vlasov.simulation import Species

        slow = (self.ion_temperature / self.mass_ratio) ** 0.5
        often = self.collision_frequency
        return [
            Species(lambda x, v: maxwellian(v) + 0 * x, self.v_max, collision_frequency=often),
            Species(lambda x, v: maxwellian(v, 0.0, slow) + 0 * x, self.v_max * slow,
                    charge=1.0, mass=self.mass_ratio, collision_frequency=often),
        ]  # fmt: skip

    def length(self) -> float:
        """Return the distance of the walls."""
        return self.size

    def walls(self) -> Wall:
        """Return absorbing walls."""
        return "absorbing"
