"""Tight-binding parameters of silicon of Kwon, Biswas, Wang, Ho and Soukoulis.

Source: Kwon et al. 1994, "Transferable tight-binding models for silicon", Phys. Rev. B 49, 7242.
Between 4 Å and 4.16 Å all functions are cubics with continuous value and slope. Energies are
relative to free atoms.
"""

from __future__ import annotations

from scitoolkit.generators.submatrix.slater_koster import Decay, SlaterKoster

JOIN, CUTOFF = 4.0, 4.16
R0 = 2.360352


def _hopping(rc: float, nc: float) -> Decay:
    return Decay.smooth(1.0, R0, 2.0, rc, nc, JOIN, CUTOFF)


SILICON = SlaterKoster(
    symbol="Si",
    onsite=(-5.25, 1.20),
    ss=(-2.038, _hopping(3.4, 9.5)),
    sp=(1.745, _hopping(3.55, 8.5)),
    pp_sigma=(2.75, _hopping(3.7, 7.5)),
    pp_pi=(-1.075, _hopping(3.7, 7.5)),
    repulsion=Decay.smooth(1.0, R0, 6.8755, 3.66995, 13.017, JOIN, CUTOFF),
    embedding=(8.7393204, 2.1604385, -0.1384393, 5.8398423e-3, -8.0263577e-5),
    cutoff=CUTOFF,
)
