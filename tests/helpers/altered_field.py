"""Alterations of the file of a monthly field: other forms of the same data, and other data."""

from __future__ import annotations

import cftime
import numpy as np
import xarray as xr

STEPS = 180


def monthly() -> xr.Dataset:
    rng = np.random.default_rng(0)
    latitude, longitude = np.linspace(-60, 60, 5), np.arange(8) * 45.0
    state = np.zeros((STEPS, 3))
    for step in range(1, STEPS):
        state[step] = np.array([0.9, 0.8, 0.7]) * state[step - 1] + rng.normal(size=3) * 0.5
    field = np.einsum("tk,kyx->tyx", state, rng.normal(size=(3, 5, 8))) + 15
    season = np.cos(2 * np.pi * np.arange(STEPS) / 12)
    field += 5 * season[:, None, None] * np.sin(np.radians(latitude))[None, :, None]
    field += 0.2 * rng.normal(size=field.shape)
    return xr.Dataset(
        {"u": (("time", "lat", "lon"), field, {"units": "degC"})},
        {
            "time": xr.date_range("1985-01-01", periods=STEPS, freq="MS"),
            "lat": ("lat", latitude, {"units": "degrees_north"}),
            "lon": ("lon", longitude, {"units": "degrees_east"}),
        },
    )


def dates(freq, **more):
    return lambda d: d.assign_coords(time=xr.date_range("1985-01-01", periods=STEPS, freq=freq))


def numbers(function, units=""):
    def change(d):
        values = np.array([function(i) for i in range(STEPS)])
        return d.assign_coords(time=("time", values, {"units": units} if units else {}))

    return change


def calendar(name):
    def change(d):
        made = [cftime.datetime(1985 + i // 12, i % 12 + 1, 1, calendar=name) for i in range(STEPS)]
        return d.assign_coords(time=np.array(made))

    return change


def unit(name, function=lambda u: u):
    def change(d):
        return d.assign(u=function(d.u).assign_attrs({"units": name} if name else {}))

    return change


def with_value(value, **where):
    def change(d):
        field = d.u.copy(deep=True)
        field[where] = value
        return d.assign(u=field)

    return change


def interpolated(**sizes):
    return lambda d: d.isel({name: slice(0, size) for name, size in sizes.items()})


REFUSED = {
    "days": dates("D"),
    "hours": dates("h"),
    "weeks": dates("7D"),
    "30 days": dates("30D"),
    "quarters": dates("3MS"),
    "years": dates("YS"),
    "half months": dates("SMS"),
    "no times": lambda d: d.drop_vars("time"),
    "step numbers": numbers(float),
    "YYYYMM": numbers(lambda i: (1985 + i // 12) * 100 + i % 12 + 1),
    "YYYYMM of float": numbers(lambda i: float((1985 + i // 12) * 100 + i % 12 + 1)),
    "YYYYMMDD": numbers(lambda i: (1985 + i // 12) * 10000 + (i % 12 + 1) * 100 + 1),
    "decimal years": numbers(lambda i: 1985 + (i + 0.5) / 12),
    "seconds": numbers(lambda i: i * 2.6e6, "s"),
    "calendar of 360 days": calendar("360_day"),
    "times that decrease": lambda d: d.isel(time=slice(None, None, -1)),
    "a time twice": lambda d: d.isel(time=[0, *range(STEPS - 1)]),
    "metres": unit("m"),
    "unknown unit": unit("furlong"),
    "kelvin without a unit": lambda d: d.assign(u=(d.u + 273.15).drop_attrs()),
    "a fill value": with_value(-9999.0, time=-1, lat=2, lon=3),
    "a large fill value": with_value(1e20, time=-1, lat=2, lon=3),
    "another name": lambda d: d.rename(u="v"),
    "fewer latitudes": interpolated(lat=4),
    "fewer longitudes": interpolated(lon=7),
    "moved latitudes": lambda d: d.assign_coords(lat=("lat", d.lat.values + 5, d.lat.attrs)),
    "moved longitudes": lambda d: d.assign_coords(lon=("lon", d.lon.values + 20, d.lon.attrs)),
    "finer latitudes": lambda d: d.assign_coords(lat=("lat", d.lat.values / 2, d.lat.attrs)),
    "a cell without values": with_value(np.nan, lat=2, lon=3),
    "an infinite value": with_value(np.inf, time=-1, lat=2, lon=3),
    "a step without values": with_value(np.nan, time=-2),
    "too few steps": lambda d: d.isel(time=slice(-3, None)),
    "a gap in the inputs": lambda d: d.isel(time=[*range(STEPS - 2), STEPS - 1]),
    "a dim of one entry": lambda d: d.expand_dims(level=[2.0]),
    "a second time": lambda d: d.expand_dims(reftime=d.time.values[:2]),
}
EQUAL = {
    "kelvin": unit("K", lambda u: u + 273.15),
    "celsius": unit("celsius"),
    "degrees C": unit("degrees C"),
    "kelvin in the attribute unit": lambda d: d.assign(
        u=(d.u + 273.15).drop_attrs().assign_attrs(unit="K")
    ),
    "fahrenheit": unit("degF", lambda u: u * 1.8 + 32),
    "no unit": unit(""),
    "dates of whole seconds": lambda d: d.assign_coords(time=d.time.values.astype("M8[s]")),
    "one more variable": lambda d: d.assign(another=2 * d.u),
    "one more scalar": lambda d: d.assign_coords(height=2.0),
    "latitudes from the north": lambda d: d.isel(lat=slice(None, None, -1)),
    "longitudes from -180": lambda d: d.roll(lon=4, roll_coords=True).assign_coords(
        lon=("lon", np.arange(8) * 45.0 - 180, d.lon.attrs)
    ),
    "another order of dims": lambda d: d.transpose("lon", "time", "lat"),
    "time last": lambda d: d.transpose("lat", "lon", "time"),
    "another name of time": lambda d: d.rename(time="valid_time"),
    "a name of time by its attributes": lambda d: d.rename(time="T"),
    "other names of space": lambda d: d.rename(lat="latitude", lon="longitude"),
    "single precision": lambda d: d.astype("f4"),
    "the last steps": lambda d: d.isel(time=slice(-40, None)),
    "a gap before the inputs": lambda d: d.isel(time=[*range(100), *range(103, STEPS)]),
}


# Dates that say something else about the season: the forecast moves, with a warning.
def _ends_of_months(times):
    return (times.astype("M8[M]") + 1).astype("M8[ns]") - np.timedelta64(1, "D")


TOLD = {
    "middles of months": lambda d: d.assign_coords(time=d.time.values + np.timedelta64(14, "D")),
    "ends of months": lambda d: d.assign_coords(time=_ends_of_months(d.time.values)),
    "calendar without leap years": calendar("noleap"),
}
