"""A field whose equation is known: waves that move along a periodic dim."""

from __future__ import annotations

import numpy as np
import xarray as xr

LENGTH = 2.0


def wave_fields(frames=17, points=24, phase=0.0) -> xr.Dataset:
    """Return waves that obey dif(u,t) + dif(u,x) = 0, dims stored as (x, t)."""
    t = np.linspace(0, 1, frames)
    x = np.arange(points) * LENGTH / points
    along = x[:, None] - t + phase
    u = np.sin(np.pi * along) + 0.4 * np.sin(3 * np.pi * along + 1 + phase)
    return xr.Dataset(
        {"u": (("x", "t"), u.astype("f4"), {"units": "m/s"})},
        coords={"x": ("x", x, {"units": "m"}), "t": ("t", t, {"units": "s"})},
        attrs={"speed": 1.0},
    )
