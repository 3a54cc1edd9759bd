"""Random variables and quantities derived from them, each as text and as a function in numpy.

`violations(case)` compresses, decompresses, and evaluates the function on original and decoded
values. The evaluation shares only the definition of the quantity with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

Fields = Mapping[str, np.ndarray]
MISSING = -999.0


def _d(values: np.ndarray, axis: int, x: np.ndarray | None = None) -> np.ndarray:
    return np.gradient(values, axis=axis) if x is None else np.gradient(values, x, axis=axis)


def _gradient(f: Fields, x: np.ndarray | None) -> np.ndarray:
    axes = range(f["u"].ndim)
    return np.sqrt(sum(_d(f["u"], a, x if a == f["u"].ndim - 1 else None) ** 2 for a in axes))


QUANTITIES: dict[str, Callable[[Fields, np.ndarray | None], np.ndarray]] = {
    "u": lambda f, x: f["u"],
    "sqrt(u^2 + v^2)": lambda f, x: np.sqrt(f["u"] ** 2 + f["v"] ** 2),
    "u*v - 0.5*w": lambda f, x: f["u"] * f["v"] - 0.5 * f["w"],
    "u/v": lambda f, x: f["u"] / f["v"],
    "log(abs(u))": lambda f, x: np.log(np.abs(f["u"])),
    "exp(-u^2) + x": lambda f, x: (
        np.exp(-(f["u"] ** 2)) + (np.arange(f["u"].shape[-1]) if x is None else x)
    ),
    "u^3 + tanh(v)": lambda f, x: f["u"] ** 3 + np.tanh(f["v"]),
    "dif(u, x)": lambda f, x: _d(f["u"], -1, x),
    "dif(dif(u, x), x)": lambda f, x: _d(_d(f["u"], -1, x), -1, x),
    "gradient(u)": _gradient,
    "vorticity(u, v)": lambda f, x: _d(f["v"], -1, x) - _d(f["u"], -2),
    "divergence(u, v)": lambda f, x: _d(f["u"], -1, x) + _d(f["v"], -2),
    "v*dif(u, x)": lambda f, x: f["v"] * _d(f["u"], -1, x),
    "mean(u)": lambda f, x: np.nanmean(f["u"]),
    "mean(u*v, x)": lambda f, x: np.nanmean(f["u"] * f["v"], axis=-1),
}


@dataclass(frozen=True)
class Case:
    """Arrays, a quantity with its bound, and how to compress."""

    arrays: Fields
    expression: str
    region: tuple[slice, ...] | None
    mode: str
    value: float
    x: np.ndarray | None
    own: tuple[str, float] | None
    objective: str

    @property
    def text(self) -> str:
        """The quantity as the package reads it."""
        names = "zyx"[-next(iter(self.arrays.values())).ndim :]
        region = (
            ""
            if self.region is None
            else "@ "
            + ", ".join(f"{d}={s.start}:{s.stop}" for d, s in zip(names, self.region, strict=True))
        )
        return f"{self.expression} {region}: {self.mode}={self.value!r}"


def _field(rng: np.random.Generator, kind: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = rng.normal(size=shape)
    if kind == "smooth":
        for axis in range(len(shape)):
            x = x.cumsum(axis)
    elif kind == "steep":
        x = np.exp(4 * x)
    elif kind == "steps":
        x = np.rint(x)
    elif kind == "constant":
        x = np.full(shape, x.flat[0])
    elif kind == "large":
        x = 1e4 + x
    elif kind == "missing":
        x[rng.random(shape) < 0.2] = MISSING
        x[rng.random(shape) < 0.05] = np.nan
    return x.astype(dtype)


KINDS = ("smooth", "noise", "steep", "steps", "constant", "large", "missing")


@st.composite
def cases(draw: Any) -> Case:
    """Return random cases; values come from a drawn seed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    expression = draw(st.sampled_from(sorted(QUANTITIES)))
    least = 2 if "vort" in expression or "div" in expression else 1
    num_dims = draw(st.integers(least, 3))
    fewest, most = {1: (2, 300), 2: (2, 28), 3: (2, 11)}[num_dims]
    shape = tuple(draw(st.lists(st.integers(fewest, most), min_size=num_dims, max_size=num_dims)))
    dtype = draw(st.sampled_from(["f4", "f8", ">f4"]))
    arrays = {n: _field(rng, draw(st.sampled_from(KINDS)), shape, dtype) for n in "uvw"}
    if "w" not in expression:
        arrays.pop("w")
    if "v" not in expression.replace("vort", "").replace("div", "") and "(u, v)" not in expression:
        arrays.pop("v", None)
    regional = draw(st.booleans()) and "mean" not in expression
    region = None
    if regional:
        begins = [int(rng.integers(0, n)) for n in shape]
        region = tuple(
            slice(b, int(rng.integers(b + 1, n + 1))) for b, n in zip(begins, shape, strict=True)
        )
    x = np.cumsum(rng.random(shape[-1]) + 0.1) if draw(st.booleans()) else None
    mode, value = draw(st.sampled_from(["abs", "rel", "pw_rel"])), 10 ** draw(st.floats(-5, -0.3))
    needed = regional or "mean" in expression
    own = draw(
        st.sampled_from(
            [("abs", 0.1), ("rel", 0.05), ("pw_rel", 0.01)] + ([] if needed else [None])
        )
    )
    objective = draw(st.sampled_from(["size", "size", "size", "speed"]))
    return Case(arrays, expression, region, mode, float(value), x, own, objective)


def violations(case: Case) -> tuple[int, bool]:
    """Return the points that break the bound, and whether any variable was coded with loss."""
    from scitoolkit.compression import Bound, Options, compress_quantities, decompress

    streams = compress_quantities(
        case.arrays,
        [case.text],
        bounds=Bound(*case.own) if case.own else None,
        options=Options(objective=case.objective),
        missing=MISSING,
        coordinates=None if case.x is None else {"x": case.x},
    )
    decoded = {name: decompress(stream) for name, stream in streams.items()}
    before, after = ({n: _floats(v) for n, v in f.items()} for f in (case.arrays, decoded))
    for name, array in case.arrays.items():
        if decoded[name].shape != array.shape or decoded[name].dtype != array.dtype:
            return array.size, True
    with np.errstate(all="ignore"):
        one, two = (QUANTITIES[case.expression](f, case.x) for f in (before, after))
    one, two = (np.asarray(q)[case.region or ...] for q in (one, two))
    with np.errstate(all="ignore"):
        finite = one[np.isfinite(one)]
        allowed = (
            case.value
            * {
                "abs": 1.0,
                "rel": float(np.ptp(finite)) if finite.size else 0.0,
                "pw_rel": np.abs(one),
            }[case.mode]
        )
        # Rounding of this evaluation, which takes its operations in another order.
        rounding = 1e-13 * (np.abs(finite).max(initial=0.0) if case.mode != "pw_rel" else abs(one))
        close = np.abs(one - two) <= allowed + rounding
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    lossy = any((_floats(a) != _floats(decoded[n])).any() for n, a in case.arrays.items())
    return int((~(close | same)).sum()), lossy


def _floats(values: np.ndarray) -> np.ndarray:
    out = values.astype(np.float64)
    out[out == MISSING] = np.nan
    return out
