"""Shipped surrogates meet their input file altered: how many differences pass in silence.

Each alteration is right if the prediction equals that of the file as shipped, to 1e-6 of its
range, or if it is refused with the file, both sides and exit code 2 to 4. A file whose values are
those of the training in another form (unit, direction, order, name, packing) may be refused too,
but is counted apart. Everything else is silent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr
from _places import ROOT

import scitoolkit
from scitoolkit.core.errors import ScitoolkitError

Alteration = Callable[[xr.Dataset, str, str], xr.Dataset]


def _scaled(data: xr.Dataset, name: str, unit: str, factor: float, offset: float) -> xr.Dataset:
    return data.assign({name: (data[name] * factor + offset).assign_attrs(units=unit)})


def _times(data: xr.Dataset, time: str, values: object, **attrs: str) -> xr.Dataset:
    return data.assign_coords({time: (time, values, attrs)})


def _space(data: xr.Dataset, name: str, time: str) -> str:
    return next(str(d) for d in data[name].dims if d != time)


def _stretched(data: xr.Dataset, time: str) -> np.ndarray:
    values = data[time].values
    return values[0] + 3 * (values - values[0])


def _uneven(data: xr.Dataset, time: str) -> np.ndarray:
    values = data[time].values
    return values + (np.arange(len(values)) % 3) * (values[1] - values[0]) / 5


# Values of the training in another form: equal predictions, or a refusal.
EQUIVALENT: dict[str, Alteration] = {
    "float64": lambda d, n, t: d.astype("float64"),
    "order of dims": lambda d, n, t: d.transpose(*reversed(d[n].dims)),
    "first dim reversed": lambda d, n, t: d.isel({_space(d, n, t): slice(None, None, -1)}),
    "time renamed": lambda d, n, t: d.rename({t: "valid_time"}),
    "one more variable": lambda d, n, t: d.assign(another=d[n] * 2),
    "one more scalar": lambda d, n, t: d.assign_coords(step=0),
    "unit not stated": lambda d, n, t: d.assign({n: d[n].assign_attrs(units="")}),
}
# Other data: they have to be refused.
DIFFERENT: dict[str, Alteration] = {
    "unit of another kind": lambda d, n, t: _scaled(d, n, "kg", 1.0, 0.0),
    "unit not in the table": lambda d, n, t: _scaled(d, n, "furlong", 1.0, 0.0),
    "three times the step": lambda d, n, t: _times(d, t, _stretched(d, t)),
    "uneven steps": lambda d, n, t: _times(d, t, _uneven(d, t)),
    "missing times": lambda d, n, t: d.isel(
        {t: np.r_[0 : d.sizes[t] - 6, d.sizes[t] - 3 : d.sizes[t]]}
    ),
    "repeated time": lambda d, n, t: d.isel({t: np.r_[0 : d.sizes[t], d.sizes[t] - 1]}),
    "times backwards": lambda d, n, t: d.isel({t: slice(None, None, -1)}),
    "YYYYMM": lambda d, n, t: _times(
        d, t, 200001 + np.arange(d.sizes[t]) % 12 + 100 * (np.arange(d.sizes[t]) // 12)
    ),
    "decimal years": lambda d, n, t: _times(d, t, 1990 + np.arange(d.sizes[t]) / 12),
    "complex": lambda d, n, t: d.assign({n: d[n] + 0j}),
    "text": lambda d, n, t: d.assign({n: d[n].astype(str)}),
    "renamed": lambda d, n, t: d.rename({n: "renamed"}),
    "one dim less": lambda d, n, t: d.isel({_space(d, n, t): 0}, drop=True),
    "one more level": lambda d, n, t: d.expand_dims(level=3, axis=1),
}
DATED: dict[str, Alteration] = {
    "no times": lambda d, n, t: d.drop_vars(t),
    "plain numbers": lambda d, n, t: _times(d, t, np.arange(float(d.sizes[t]))),
    "daily": lambda d, n, t: _times(
        d, t, d[t].values[0] + np.arange(d.sizes[t]) * np.timedelta64(1, "D")
    ),
    "calendar of 360 days": lambda d, n, t: d.assign_coords(
        {t: xr.date_range("1990-01-16", periods=d.sizes[t], freq="MS", calendar="360_day")}
    ),
    "kelvin in degrees Celsius' place": lambda d, n, t: _scaled(d, n, "Pa", 1.0, 273.15),
}
CONVERTED: dict[str, Alteration] = {
    "kelvin": lambda d, n, t: _scaled(d, n, "K", 1.0, 273.15),
    "fahrenheit": lambda d, n, t: _scaled(d, n, "degF", 1.8, 32.0),
}


def _predicted(surrogate: Path, data: xr.Dataset, folder: Path) -> dict[str, np.ndarray]:
    source, output = folder / "input.nc", folder / "output.nc"
    output.unlink(missing_ok=True)
    data.to_netcdf(source, engine="h5netcdf", invalid_netcdf=True)
    scitoolkit.predict(surrogate, source, output)
    with scitoolkit.open_fields(output) as result:
        loaded = result.load()
    ordered = loaded.transpose(*sorted(map(str, loaded.dims)))
    for dim in ordered.dims:
        if dim in ordered.coords and ordered[dim].dtype.kind in "iufM":
            ordered = ordered.sortby(dim)
    return {str(n): v.values for n, v in ordered.data_vars.items() if v.dtype.kind == "f"}


def _same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    if first.keys() != second.keys():
        return False
    for name, values in first.items():
        other = second[name]
        scale = np.nanmax(np.abs(values))
        if values.shape != other.shape or not np.allclose(
            values, other, rtol=0, atol=1e-6 * scale, equal_nan=True
        ):
            return False
    return True


def run() -> dict:
    """Return the counts; `silent` names what passed without a word."""
    ersst = ROOT / "datasets/ersst_v5/ersstv5_monthly_2deg_201001-202008.nc"
    convection = sorted((ROOT / "datasets/rayleigh_benard").glob("rb2d_ra1e6_pr1_s42_*.h5"))[0]
    cases = [
        ("sst_forecast", ersst, "sst", EQUIVALENT | CONVERTED, DIFFERENT | DATED),
        ("rb2d_emulator", convection, "u", EQUIVALENT, DIFFERENT),
    ]
    counts = {"alterations": 0, "equal": 0, "refused": 0, "refused_although_equivalent": 0}
    silent: list[str] = []
    for surrogate, path, name, equivalent, different in cases:
        with scitoolkit.open_fields(path) as opened:
            data = opened.load()
        time = str(data[name].dims[0])
        with tempfile.TemporaryDirectory() as folder:
            where = ROOT / "surrogates" / surrogate
            expected = _predicted(where, data, Path(folder))
            for title, alter in {**equivalent, **different}.items():
                counts["alterations"] += 1
                try:
                    result = _predicted(where, alter(data, name, time), Path(folder))
                except ScitoolkitError as error:
                    refused = "refused" if title in different else "refused_although_equivalent"
                    counts[refused] += 1
                    if "input.nc" not in str(error) and title in different:
                        silent.append(f"{surrogate}: {title}: the file is not named")
                    continue
                if title in equivalent and _same(expected, result):
                    counts["equal"] += 1
                else:
                    silent.append(f"{surrogate}: {title}")
    return {**counts, "silent": len(silent), "silent_names": silent}
