"""Standard problems of the generator `conservation_laws`: equations and settings by name.

Gas and shallow water are those of PDEBench (Takamoto et al. 2022, arXiv 2210.07182), without
viscosity, and the shock tube is that of Sod 1978 (J. Comput. Phys. 27, 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def _gas(dims: Sequence[str]) -> dict[str, Any]:
    """Return the equations of an ideal gas: density, momenta m_x, ..., energy."""
    squares = " + ".join(f"m_{d}**2" for d in dims)

    def law(field: str, fluxes: Mapping[str, str]) -> str:
        return f"dif({field},t) + {' + '.join(f'dif({f},{d})' for d, f in fluxes.items())} = 0"

    return {
        "dims": list(dims),
        "equations": [
            law("density", {d: f"m_{d}" for d in dims}),
            *(
                law(
                    f"m_{d}",
                    {e: f"m_{d}*m_{e}/density" + (" + pressure" if d == e else "") for e in dims},
                )
                for d in dims
            ),
            law("energy", {d: f"m_{d}/density*(energy + pressure)" for d in dims}),
        ],
        "where": {"pressure": f"(gamma - 1)*(energy - ({squares})/(2*density))"},
        "speeds": {d: f"abs(m_{d}/density) + sqrt(gamma*pressure/density)" for d in dims},
        "constants": {"gamma": 5 / 3},
    }


def _smooth(dims: Sequence[str]) -> dict[str, Any]:
    """Return settings of random waves of a gas at rest of density 1 and pressure 1."""
    rms = 0.1 if len(dims) == 3 else 0.2
    return {
        "initial": {"density": "1", "energy": "1/(gamma - 1)"},
        "amplitude": {**dict.fromkeys(("density", "energy"), 0.1)} | {f"m_{d}": rms for d in dims},
        "length": 1.0,
        "longest": 2,
        "time_step": {1: 0.1, 2: 0.1, 3: 0.06}[len(dims)] / {1: 256, 2: 128, 3: 32}[len(dims)],
        "cells": {1: 256, 2: 128, 3: 32}[len(dims)],
        "interval": {1: 32, 2: 16, 3: 4}[len(dims)],
        "frames": 10,
    }


PROBLEMS: Mapping[str, Mapping[str, Any]] = {
    "burgers_inviscid": {
        "equations": "dif(u,t) + dif(u**2/2,x) = 0",
        "amplitude": {"u": 1.0},
        "cells": 512,
        "time_step": 1e-3,
        "interval": 50,
        "frames": 20,
    },
    "advection": {
        "equations": "dif(u,t) + dif(speed*u,x) = 0",
        "amplitude": {"u": 1.0},
        "constants": {"speed": 1.0},
        "cells": 256,
        "time_step": 5e-3,
        "interval": 20,
        "frames": 20,
    },
    "shock_tube": {
        **_gas("x"),
        "constants": {"gamma": 1.4, "density_right": 0.125, "pressure_right": 0.1},
        "initial": {
            "density": "(1 + density_right)/2 - (1 - density_right)/2*tanh(1e6*(x - 0.5))",
            "energy": "((1 + pressure_right)/2 - (1 - pressure_right)/2*tanh(1e6*(x - 0.5)))"
            "/(gamma - 1)",
        },
        "open": ["x"],
        "length": 1.0,
        "cells": 400,
        "time_step": 5e-4,
        "interval": 40,
        "frames": 10,
    },
    "gas_1d": {**_gas("x"), **_smooth("x")},
    "gas_2d": {**_gas("xy"), **_smooth("xy")},
    "gas_3d": {**_gas("xyz"), **_smooth("xyz")},
    "shallow_water": {
        "dims": ["x", "y"],
        "equations": [
            "dif(h,t) + dif(m,x) + dif(n,y) = 0",
            "dif(m,t) + dif(m**2/h + g*h**2/2,x) + dif(m*n/h,y) = 0",
            "dif(n,t) + dif(m*n/h,x) + dif(n**2/h + g*h**2/2,y) = 0",
        ],
        "speeds": {"x": "abs(m/h) + sqrt(g*h)", "y": "abs(n/h) + sqrt(g*h)"},
        "constants": {"g": 1.0, "radius": 0.5, "depth": 2.0},
        "initial": {
            "h": "(1 + depth)/2 - (depth - 1)/2"
            "*tanh(10*(sqrt((x - 2.5)**2 + (y - 2.5)**2) - radius))"
        },
        "open": ["x", "y"],
        "length": 5.0,
        "cells": 160,
        "time_step": 3.125e-3,
        "interval": 32,
        "frames": 10,
    },
}
"""{name: keys of the generator `conservation_laws`}."""
