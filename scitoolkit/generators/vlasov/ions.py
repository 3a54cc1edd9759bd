"""Base class of the generators with mobile ions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, PositiveFloat

from scitoolkit.generators.vlasov.base import VlasovGenerator, maxwellian, perturbed

if TYPE_CHECKING:
    from scitoolkit.generators.vlasov.simulation import Species


class IonPlasma(VlasovGenerator):
    """Base class of plasmas of Maxwellian electrons and ions.

    Attributes:
        mass_ratio: of ions to electrons.
        ion_temperature: relative to the electrons.
    """

    species_names: ClassVar[Sequence[str]] = ("electrons", "ions")
    parameters: ClassVar[Mapping[str, str]] = {"mass_ratio": "1", "ion_temperature": "1"}
    equations: ClassVar[str] = (
        "f_t + v f_x + (q/m) E f_v = 0 for electrons and ions, E_t = -J (Vlasov-Ampère, 1X1V)"
    )

    mass_ratio: Annotated[float, Field(ge=1)] = 100.0
    ion_temperature: PositiveFloat = 1.0

    def ion_speed(self) -> float:
        """Return the thermal speed of the ions."""
        return (self.ion_temperature / self.mass_ratio) ** 0.5

    def ion_v_max(self) -> float:
        """Return the largest ion velocity, `v_max` thermal speeds of the ions."""
        return self.v_max * self.ion_speed()

    def densities(self) -> tuple[float, float]:
        """Return the amplitudes of the density waves of electrons and ions."""
        return 0.0, 0.0

    def species(self) -> Sequence[Species]:
        """Return electrons and ions."""
        from scitoolkit.generators.vlasov.simulation import Species

        slow, often, k = self.ion_speed(), self.collision_frequency, self.wavenumber
        electrons, ions = self.densities()
        return [
            Species(perturbed(maxwellian, k, electrons), self.v_max, collision_frequency=often),
            Species(
                perturbed(lambda v: maxwellian(v, 0.0, slow), k, ions),
                self.ion_v_max(),
                charge=1.0,
                mass=self.mass_ratio,
                collision_frequency=often,
            ),
        ]
