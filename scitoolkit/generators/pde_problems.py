"""Standard problems of the generator `pde`: equations and settings by name.

Most are those of the collections APEBench (Koehler et al. 2024, arXiv 2411.00180) and PDEBench
(Takamoto et al. 2022, arXiv 2210.07182), in boxes of which the equations state their own units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PROBLEMS: Mapping[str, Mapping[str, Any]] = {
    "advection": {
        "equations": "dif(u,t) + speed*dif(u,x) = 0",
        "constants": {"speed": 1.0},
    },
    "diffusion": {
        "equations": "dif(u,t) = nu*dif(u,x,x)",
        "constants": {"nu": 0.05},
    },
    "advection_diffusion": {
        "equations": "dif(u,t) + speed*dif(u,x) = nu*dif(u,x,x)",
        "constants": {"speed": 1.0, "nu": 0.05},
    },
    "dispersion": {
        "equations": "dif(u,t) = xi*dif(u,x,3)",
        "constants": {"xi": 0.1},
    },
    "hyper_diffusion": {
        "equations": "dif(u,t) = -mu*dif(u,x,4)",
        "constants": {"mu": 0.002},
    },
    "burgers": {
        "equations": "dif(u,t) + u*dif(u,x) = nu*dif(u,x,x)",
        "constants": {"nu": 0.05},
        "cells": 256,
        "time_step": 5e-3,
    },
    "kdv": {
        "equations": "dif(u,t) + 6*u*dif(u,x) + dif(u,x,3) = 0",
        "length": 20.0,
        "time_step": 2e-3,
        "interval": 50,
        "frames": 40,
    },
    "kuramoto_sivashinsky": {
        "equations": "dif(u,t) + u*dif(u,x) + dif(u,x,x) + dif(u,x,4) = 0",
        "length": 22.0,
        "cells": 64,
        "time_step": 0.05,
        "interval": 20,
        "spinup": 100,
        "chaotic": True,
    },
    "fisher_kpp": {
        "equations": "dif(u,t) = d*dif(u,x,x) + r*u*(1 - u)",
        "constants": {"d": 0.05, "r": 1.0},
        "initial": {"u": "exp(-10*(1 - cos(x - 3.141592653589793)))"},
    },
    "allen_cahn": {
        "equations": "dif(u,t) = eps*dif(u,x,x) + u - u**3",
        "constants": {"eps": 0.02},
    },
    "nonlinear_schroedinger": {
        "equations": [
            "dif(a,t) = -0.5*dif(b,x,x) - (a**2 + b**2)*b",
            "dif(b,t) = 0.5*dif(a,x,x) + (a**2 + b**2)*a",
        ],
        "length": 20.0,
        "time_step": 2e-3,
        "interval": 50,
        "amplitude": {"a": 0.5, "b": 0.5},
    },
    "gray_scott": {
        "equations": [
            "dif(a,t) = da*(dif(a,x,x) + dif(a,y,y)) - a*b**2 + feed*(1 - a)",
            "dif(b,t) = db*(dif(b,x,x) + dif(b,y,y)) + a*b**2 - (feed + kill)*b",
        ],
        "dims": ["x", "y"],
        "constants": {"da": 2e-5, "db": 1e-5, "feed": 0.04, "kill": 0.06},
        "initial": {
            "a": "1 - 0.5*exp(-15*(2 - cos(5.026548245743669*x) - cos(5.026548245743669*y)))",
            "b": "0.25*exp(-15*(2 - cos(5.026548245743669*(x - 0.1)) "
            "- cos(5.026548245743669*(y - 0.05))))",
        },
        "length": 1.25,
        "cells": 192,
        "time_step": 2.0,
        "spinup": 25,
    },
    "reaction_diffusion": {
        "equations": [
            "dif(u,t) = du*(dif(u,x,x) + dif(u,y,y)) + u - u**3 - k - v",
            "dif(v,t) = dv*(dif(v,x,x) + dif(v,y,y)) + u - v",
        ],
        "dims": ["x", "y"],
        "constants": {"du": 1e-3, "dv": 5e-3, "k": 5e-3},
        "walls": {dim: {"u": "slope", "v": "slope"} for dim in "xy"},
        "length": 2.0,
        "cells": 64,
        "time_step": 0.02,
        "frames": 20,
    },
    "swift_hohenberg": {
        "equations": "dif(u,t) = r*u - u - 2*(dif(u,x,x) + dif(u,y,y)) - dif(u,x,4) "
        "- 2*dif(u,x,x,y,y) - dif(u,y,4) - u**3",
        "dims": ["x", "y"],
        "constants": {"r": 0.3},
        "length": 37.69911184307752,
        "cells": 64,
        "time_step": 0.05,
        "interval": 20,
        "amplitude": {"u": 0.1},
    },
    "navier_stokes": {
        "equations": [
            "dif(w,t) + dif(psi,y)*dif(w,x) - dif(psi,x)*dif(w,y) = nu*(dif(w,x,x) + dif(w,y,y))",
            "dif(psi,x,x) + dif(psi,y,y) = -w",
        ],
        "dims": ["x", "y"],
        "constants": {"nu": 0.02},
        "cells": 64,
        "amplitude": {"w": 2.0},
        "time_step": 0.01,
    },
    "kolmogorov_flow": {
        "equations": [
            "dif(w,t) + dif(psi,y)*dif(w,x) - dif(psi,x)*dif(w,y) = nu*(dif(w,x,x) + dif(w,y,y)) "
            "- drag*w - 4*cos(4*y)",
            "dif(psi,x,x) + dif(psi,y,y) = -w",
        ],
        "dims": ["x", "y"],
        "constants": {"nu": 0.02, "drag": 0.1},
        "cells": 64,
        "amplitude": {"w": 1.0},
        "time_step": 0.01,
        "interval": 20,
        "spinup": 50,
        "chaotic": True,
    },
}
"""{name: keys of the generator `pde`}."""
