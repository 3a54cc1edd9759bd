"""Fields of all magnitudes, spreads, dims and dtypes with all bounds and codecs, by number.

`outcome` compresses one of them in a forked process and says how it ended, so that a codec that
ends its process is an outcome and not the end of the test.
"""

from __future__ import annotations

import math
import os
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np

KINDS = ("smooth", "noise", "steps", "spike", "offset", "constant", "sparse")
EXTENTS = {1: 3000, 2: 60, 3: 20, 4: 9}
DECADES = {"f2": (-7, 4), "f4": (-45, 38), "f8": (-320, 308)}
CODECS = ("auto", "auto", "auto", "sz3", "sperr", "zfp", "interpolation", "dyadic", "blocks")
OUTCOMES = {0: "holds", 2: "exception", 3: "refused", 4: "violation", 5: "large"}


@dataclass(frozen=True)
class ExtremeCase:
    """A field, its bound and the options of `compress`."""

    values: np.ndarray
    mode: str
    value: float
    options: dict[str, Any]


def extreme_case(number: int) -> ExtremeCase:
    """Return the case of a number; equal numbers give equal cases."""
    rng = np.random.default_rng(number)
    dims = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.integers(1, EXTENTS[dims], dims))
    dtype = str(rng.choice(["f4", "f8", "f8", "f4", "f2"]))
    low, high = DECADES[dtype]
    field = _field(rng, shape, str(rng.choice(KINDS)))
    if rng.random() < 0.2:  # every point of another magnitude
        field = np.sign(field) * 10.0 ** (-rng.random() * rng.uniform(0, high - low, shape))
    half = 10.0 ** (rng.uniform(low, high) / 2)  # 1e-320 itself has few digits
    limit = np.finfo(dtype).max
    with np.errstate(all="ignore"):
        values = np.clip(np.nan_to_num((field * half * half).astype(dtype)), -limit, limit)
    if rng.random() < 0.15:
        values.flat[rng.integers(0, values.size, 3)] = rng.choice([np.nan, np.inf, -np.inf], 3)
    largest = float(np.abs(values[np.isfinite(values)].astype(float)).max(initial=0.0))
    mode = str(rng.choice(["abs", "rel", "pw_rel", "psnr"], p=[0.3, 0.4, 0.15, 0.15]))
    near = largest * 10.0 ** rng.uniform(-20, 1)
    value = {
        "abs": near if rng.random() < 0.7 and near < 1e300 else 10.0 ** rng.uniform(-300, 300),
        "rel": 10.0 ** rng.uniform(-20, 0),
        "pw_rel": 10.0 ** rng.uniform(-18, -0.01),
        "psnr": rng.uniform(0, 200),
    }[mode]
    codec = str(rng.choice(CODECS))
    objective = str(rng.choice(["size", "quality", "speed"], p=[0.6, 0.2, 0.2]))
    options = {
        "codec": codec,
        "objective": objective if codec == "auto" else "size",
        "guarantee": "relaxed" if rng.random() < 0.1 else "strict",
    }
    return ExtremeCase(values, mode, float(value), options)


def outcome(number: int) -> str:
    """Return one of `OUTCOMES`, or `signal N`, for the case of a number in a forked process."""
    child = os.fork()
    if not child:
        code = 2
        try:
            code = _code(extreme_case(number))
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    status = os.waitpid(child, 0)[1]
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else OUTCOMES[status >> 8]


def _code(case: ExtremeCase) -> int:
    from scitoolkit.compression import compress, decompress
    from scitoolkit.core.errors import BackendError, ConfigError, NumericalError

    try:
        stream = compress(case.values, **{case.mode: case.value}, **case.options)
    except NumericalError:  # a few outliers set the range
        return 3 if case.mode in ("rel", "psnr") else 2
    except (BackendError, ConfigError):
        return 3 if case.options["codec"] != "auto" else 2
    decoded = decompress(stream)
    finite = np.isfinite(case.values)
    assert decoded.dtype == case.values.dtype
    assert decoded[~finite].tobytes() == case.values[~finite].tobytes()
    if not _holds(case, case.values[finite], decoded[finite]):
        return 4
    return 5 if len(stream) > case.values.nbytes + 400 else 0


def _holds(case: ExtremeCase, original: np.ndarray, decoded: np.ndarray) -> bool:
    """Return whether the bound holds, in extended precision up to the rounding of float64."""
    if not original.size:
        return True
    x = original.astype(np.longdouble)
    error = np.abs(x - decoded.astype(np.longdouble))
    extent = x.max() - x.min()
    if case.mode == "psnr":
        rmse = np.sqrt(np.mean(error**2))
        return bool(rmse == 0 or 20 * np.log10(extent / rmse) >= case.value - 1e-8)
    unit = {"abs": 1.0, "rel": extent, "pw_rel": np.abs(x)}[case.mode]
    factor = 2 if case.options["guarantee"] == "relaxed" and case.mode != "pw_rel" else 1
    allowed = np.longdouble(case.value) * unit * factor * (1 + np.longdouble(2) ** -50)
    return bool(np.all(error <= allowed)) and math.isfinite(float(error.max()))


def _field(rng: np.random.Generator, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Return a field (float64) of magnitude about 1."""
    if kind == "smooth":
        from scipy.ndimage import gaussian_filter

        values = gaussian_filter(rng.normal(size=shape), 1.5)
        return values / (np.abs(values).max() or 1.0)
    if kind == "noise":
        return rng.normal(size=shape)
    if kind == "steps":
        return np.floor(3 * rng.normal(size=shape))
    if kind == "offset":
        return 1 + 1e-4 * rng.normal(size=shape)
    if kind == "constant":
        return np.full(shape, rng.normal())
    values = np.zeros(shape)
    if kind == "spike":
        values.flat[rng.integers(values.size)] = 1.0
        return values
    return np.where(rng.random(shape) < 0.05, rng.normal(size=shape), values)
