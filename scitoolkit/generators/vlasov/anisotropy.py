"""Generator `vlasov_anisotropy`: a plasma with two temperatures in 1X2V."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from scitoolkit.generators.base import Check
from scitoolkit.generators.vlasov.base import SPEED, VlasovGenerator, maxwellian

if TYPE_CHECKING:
    import numpy as np

    from scitoolkit.generators.vlasov.simulation import Species

SHOWN = 1e-2
"""Fraction of the initial anisotropy down to which its decay is measured."""
LEAST_DRIVEN = 1e3
"""Smallest ratio of anisotropy to squared amplitude, which is the order of the field's work."""


class Anisotropy(VlasovGenerator):
    """Electrons with two temperatures, which collisions equalise, and a wave.

    BGK collisions relax n (T - Ty) exactly at their frequency; without collisions the damping of
    the wave depends only on the temperature along x.

    Attributes:
        thermal: thermal speed along x.
        thermal_y: thermal speed along y.
        cells_vy: number of cells of vy, which is truncated at `v_max` like vx.
    """

    name: Literal["vlasov_anisotropy"] = "vlasov_anisotropy"
    parameters: ClassVar[Mapping[str, str]] = {
        **VlasovGenerator.parameters,
        "thermal": SPEED,
        "thermal_y": SPEED,
        "collision_frequency": "plasma frequency",
    }
    equations: ClassVar[str] = (
        "f_t + vx f_x + (q/m) E f_vx = nu (M[f] - f), E_t = -J (Vlasov-Ampère-BGK, 1X2V; ions at "
        "rest)"
    )
    damped: ClassVar[bool] = True

    amplitude: Annotated[PositiveFloat, Field(lt=1)] = 1e-3
    v_max: PositiveFloat = 7.0
    cells_x: Annotated[int, Field(ge=2)] = 8
    cells_v: Annotated[int, Field(ge=16, multiple_of=16)] = 48
    cells_vy: Annotated[int, Field(ge=2)] = 12
    duration: PositiveFloat = 10.0
    frames: Annotated[int, Field(ge=2)] = 21
    collision_frequency: NonNegativeFloat = 0.2
    thermal: Annotated[PositiveFloat, Field(ge=0.3, le=3)] = 1.2
    thermal_y: Annotated[PositiveFloat, Field(ge=0.3, le=3)] = 0.8

    def rows_vy(self) -> int:
        """Return the number of cells of vy."""
        return self.cells_vy

    def species(self) -> Sequence[Species]:
        """Return electrons with a density wave."""
        import numpy as np

        from scitoolkit.generators.vlasov.simulation import Species

        def initial(x: np.ndarray, vx: np.ndarray, vy: np.ndarray) -> np.ndarray:
            wave = 1 + self.amplitude * np.cos(self.wavenumber * x)
            return wave * maxwellian(vx, 0.0, self.thermal) * maxwellian(vy, 0.0, self.thermal_y)

        return [Species(initial, self.v_max, collision_frequency=self.collision_frequency)]

    def exact_root(self) -> complex | None:
        """Return the least damped root for the distribution of vx."""
        from scitoolkit.generators.vlasov.dispersion import Beam, least_damped

        return least_damped(self.wavenumber, [Beam(1.0, 0.0, self.thermal)], oscillating=True)

    def fastest(self) -> float:
        """Return twice the larger thermal speed."""
        return 2 * max(self.thermal, self.thermal_y)

    def checks(self, frames: Any) -> Sequence[Check]:
        """Return the check of the relaxation rate of the temperatures, or of the wave."""
        if not self.collision_frequency:
            return super().checks(frames)
        rate = self.relaxation_rate(frames)
        if rate is None:
            return ()
        exact = self.collision_frequency
        return [Check("relaxation rate", rate, exact, 2e-3 * exact, "plasma frequency")]

    def relaxation_rate(self, frames: Any) -> float | None:
        """Return the decay rate of n (T - Ty), or None if it is too small to be measured."""
        import numpy as np

        difference = anisotropy(frames)
        small = np.abs(difference) <= SHOWN * abs(difference[0])
        last = int(np.argmax(small)) if small.any() else small.size
        if abs(difference[0]) < LEAST_DRIVEN * self.amplitude**2 or last < 2:
            return None
        times = frames["time"].values[:last]
        return float(-np.polyfit(times, np.log(np.abs(difference[:last])), 1)[0])


def anisotropy(frames: Any) -> np.ndarray:
    """Return the mean over x of the second moments of vx minus those of vy, (time,)."""
    along = frames["T"] + frames["u"] ** 2 - frames["Ty"] - frames["uy"] ** 2
    mean: np.ndarray = (frames["n"] * along).mean("x").values
    return mean
