"""Tight-binding parameters of carbon of Xu, Wang, Chan and Ho.

Source: Xu, Wang, Chan and Ho 1992, "A transferable tight-binding potential for carbon", J. Phys.:
Condens. Matter 4, 6047.
"""

from __future__ import annotations

from scitoolkit.generators.submatrix.slater_koster import Decay, SlaterKoster

CUTOFF = 2.6
HOPPING = Decay(
    1.0,
    1.536329,
    2.0,
    2.18,
    6.5,
    2.45,
    CUTOFF,
    (6.7392620074314e-3, -8.1885359517898e-2, 0.1932365259144, 0.3542874332380),
)
REPULSION = Decay(
    8.18555,
    1.64,
    3.30304,
    2.1052,
    8.6655,
    2.57,
    CUTOFF,
    (2.2504290109e-8, -1.4408640561e-6, 2.1043303374e-5, 6.6024390226e-5),
)
CARBON = SlaterKoster(
    symbol="C",
    onsite=(-2.99, 3.71),
    ss=(-5.0, HOPPING),
    sp=(4.7, HOPPING),
    pp_sigma=(5.5, HOPPING),
    pp_pi=(-1.55, HOPPING),
    repulsion=REPULSION,
    embedding=(
        -2.5909765118191,
        0.5721151498619,
        -1.7896349903996e-3,
        2.3539221516757e-5,
        -1.24251169551587e-7,
    ),
    cutoff=CUTOFF,
)
