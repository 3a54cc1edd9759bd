"""Fields of all magnitudes, spreads, dims, dtypes and missing values with all bounds, by number.

Each is stored as a stream, behind the HDF5 filter in chunks of any shape, or in a file written by
`compress_file`. `outcome` stores one in a forked process and says how it ended, so that a codec
that ends its process is an outcome and not the end of the test.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

KINDS = ("smooth", "noise", "steps", "spike", "offset", "constant", "sparse")
EXTENTS = {1: 3000, 2: 60, 3: 20, 4: 9, 5: 6}
DECADES = {"f2": (-7, 4), "f4": (-45, 38), "f8": (-320, 308)}
STORAGES = ("stream",) * 6 + ("filter",) * 3 + ("file",)
CODECS = ("auto", "auto", "auto", "sz3", "sperr", "zfp", "interpolation", "dyadic", "blocks")
OUTCOMES = {0: "holds", 2: "exception", 3: "refused", 4: "violation", 5: "large"}


@dataclass(frozen=True)
class ExtremeCase:
    """A field, its bound, the options of `compress`, and how it is stored.

    Args:
        values: the field.
        mode: of the bound.
        value: of the bound.
        options: codec, objective and guarantee.
        fill: value that marks missing points; None if there is none.
        storage: `stream`, `filter` or `file`.
        chunks: shape of the chunks behind the filter.
    """

    values: np.ndarray
    mode: str
    value: float
    options: dict[str, Any]
    fill: float | None
    storage: str
    chunks: tuple[int, ...]

    @property
    def valid(self) -> np.ndarray:
        """True where the bound applies: finite values that are not missing."""
        missing = np.zeros(self.values.shape, bool) if self.fill is None else self._filled()
        return np.isfinite(self.values) & ~missing

    def _filled(self) -> np.ndarray:
        return self.values == self.values.dtype.type(self.fill)


def extreme_case(number: int) -> ExtremeCase:
    """Return the case of a number; equal numbers give equal cases."""
    rng = np.random.default_rng(number)
    dims = int(rng.integers(1, 6))
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
    storage = str(rng.choice(STORAGES))
    options = {
        "codec": codec,
        "objective": objective if codec == "auto" else "size",
        "guarantee": "relaxed" if rng.random() < 0.1 else "strict",
    }
    if storage == "filter":
        if dtype == "f2" or mode != "abs":
            mode, value = "abs", min(max(near, 1e-320), 1e300)
        values = values.astype("f4") if dtype == "f2" else values
        options = {"codec": "auto", "objective": "size", "guarantee": "strict"}
    fill = None
    if rng.random() < 0.25:
        fills = (1e20, -999.0, -0.0, float(np.finfo(values.dtype).max), float(values.flat[0]))
        with np.errstate(over="ignore"):
            fill = float(values.dtype.type(rng.choice(fills)))
        fill = fill if math.isfinite(fill) else None
    if fill is not None:
        values[rng.random(shape) < rng.uniform(0, 1.05)] = fill
    chunks = tuple(int(rng.integers(1, n + 1)) for n in shape)
    while math.prod(-(-n // c) for n, c in zip(shape, chunks, strict=True)) > 64:
        chunks = tuple(min(2 * c, n) for n, c in zip(shape, chunks, strict=True))
    if rng.random() < 0.15:
        values = values.astype(values.dtype.newbyteorder(">"))
    return ExtremeCase(values, mode, float(value), options, fill, storage, chunks)


def load_libraries() -> None:
    """Import and build what all cases need, so that forked processes do not repeat it."""
    values = np.linspace(0, 1, 12**3, dtype="f4").reshape(12, 12, 12)
    for storage in set(STORAGES):
        for codec in set(CODECS):
            options = {"codec": codec}
            _code(ExtremeCase(values, "abs", 1e-2, options, values[0, 0, 0], storage, (6, 6, 6)))
    extreme_case(0)


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
    from scitoolkit.core.errors import BackendError, ConfigError, NumericalError

    try:
        stored = {"stream": _as_stream, "filter": _behind_filter, "file": _in_file}[case.storage]
        decoded, num_bytes = stored(case)
    except NumericalError:  # a few outliers set the range
        return 3 if case.mode in ("rel", "psnr") else 2
    except (BackendError, ConfigError):
        return 3 if case.options["codec"] != "auto" else 2
    valid = case.valid
    assert decoded.dtype == case.values.dtype
    assert decoded[~valid].tobytes() == case.values[~valid].tobytes()
    if case.fill is not None and (decoded[valid] == decoded.dtype.type(case.fill)).any():
        return 4  # readers would take it as missing
    if not _holds(case, case.values[valid], decoded[valid]):
        return 4
    return 5 if num_bytes > _most_bytes(case) else 0


def _as_stream(case: ExtremeCase) -> tuple[np.ndarray, int]:
    from scitoolkit.compression import compress, decompress

    bound = {case.mode: case.value}
    stream = compress(case.values, **bound, **case.options, missing=case.fill)
    return decompress(stream), len(stream)


def _behind_filter(case: ExtremeCase) -> tuple[np.ndarray, int]:
    from scitoolkit.compression.filtered import load_filter
    from scitoolkit.compression.native.plugin import filter_options

    load_filter()
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        file.create_dataset(
            "v",
            data=case.values,
            chunks=case.chunks,
            fillvalue=case.fill,
            **filter_options(case.value),
        )
    with h5py.File(memory) as file:
        return file["v"][...], file["v"].id.get_storage_size()


def _in_file(case: ExtremeCase) -> tuple[np.ndarray, int]:
    from scitoolkit.compression import Bound, Options
    from scitoolkit.compression.check import verify_file
    from scitoolkit.compression.files import FilePlan, compress_file, decompress_file

    with tempfile.TemporaryDirectory() as folder:
        original, small, back = (Path(folder) / f"{name}.h5" for name in ("a", "b", "c"))
        with h5py.File(original, "w") as file:
            made = file.create_dataset("v", data=case.values)
            if case.fill is not None:
                made.attrs["_FillValue"] = case.values.dtype.type(case.fill)
        bound = Bound(case.mode, case.value)
        compress_file(original, small, FilePlan(None, {"v": bound}, Options(**case.options)))
        assert all(check["holds"] for check in verify_file(small, original))
        decompress_file(small, back)
        with h5py.File(back) as file:
            # The structure of a file takes up to 12 kB.
            return file["v"][...], small.stat().st_size - (1 << 14)


def _most_bytes(case: ExtremeCase) -> int:
    """Return the largest size allowed: the values, and a header for the field or each chunk."""
    if case.storage != "filter":
        return case.values.nbytes + 400
    pairs = zip(case.values.shape, case.chunks, strict=True)
    num_chunks = math.prod(-(-n // c) for n, c in pairs)
    return num_chunks * (math.prod(case.chunks) * case.values.itemsize + 20)


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
    factor = 2 if case.options.get("guarantee") == "relaxed" and case.mode != "pw_rel" else 1
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
