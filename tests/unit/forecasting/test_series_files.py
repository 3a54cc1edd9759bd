"""Series as their files hold them: columns that are no numbers, weekdays, drivers, panels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from scitoolkit.core.data_differences import compare
from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.forecasting.checks import field_warnings
from scitoolkit.forecasting.config import FieldConfig, ForecastingConfig
from scitoolkit.forecasting.data import read_field
from scitoolkit.forecasting.fields import field_facts, read_drivers, read_variables
from scitoolkit.forecasting.job import ForecastingJob
from scitoolkit.forecasting.seasons import find_seasons
from scitoolkit.io.calendar_steps import times_after

COUNT = 120
DAYS = pd.date_range("2001-01-01", periods=COUNT)


def noise(count=COUNT, seed=0):
    return 10 + np.random.default_rng(seed).standard_normal(count)


def table(folder, name="series.csv", **columns):
    path = folder / name
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_true_and_false_are_no_numbers(tmp_path):
    path = table(tmp_path, time=DAYS, y=noise() > 10)
    with pytest.raises(DataError, match="true or false"):
        read_field(FieldConfig(path=path, variable="y"))
    xr.Dataset({"y": ("time", noise() > 10)}, {"time": DAYS}).to_netcdf(
        tmp_path / "y.nc", engine="h5netcdf"
    )
    with pytest.raises(DataError, match="true or false"):
        read_field(FieldConfig(path=tmp_path / "y.nc", variable="y"))


def test_a_driver_of_true_and_false_counts_as_one_and_zero(tmp_path):
    path = table(tmp_path, time=DAYS, y=noise(), holiday=DAYS.day_of_week == 6)
    config = FieldConfig(path=path, variable="y", drivers=[{"variable": "holiday"}])
    times = read_field(config).times
    np.testing.assert_array_equal(read_drivers(config, times)[:, 0], DAYS.day_of_week == 6)


@pytest.mark.parametrize("code", [-99.9, -99.0, -999.0, 999.9])
def test_codes_of_missing_values_are_refused(tmp_path, code):
    values = np.where(np.arange(COUNT) % 30 == 7, code, noise())
    path = table(tmp_path, time=DAYS, y=values)
    with pytest.raises(DataError, match="unflagged fill value"):
        read_variables(FieldConfig(path=path, variable="y"))


@pytest.mark.parametrize("largest", [99.9, 99.0])
def test_a_saturated_sensor_is_no_code(tmp_path, largest):
    values = np.minimum(80 + 15 * (noise() - 10), largest)
    path = table(tmp_path, time=DAYS, y=values)
    data, _ = read_variables(FieldConfig(path=path, variable="y"))
    np.testing.assert_array_equal(data.series.values[:, 0], values)


def test_weekdays_are_even_steps_and_a_week_has_five(tmp_path):
    days = pd.date_range("2001-01-01", periods=400, freq="B")
    values = noise(400) + 5 * (days.day_of_week == 1)
    data = read_field(FieldConfig(path=table(tmp_path, time=days, y=values), variable="y"))
    assert data.breakpoints == ()
    expected = pd.date_range("2001-01-01", periods=405, freq="B")[-5:]
    np.testing.assert_array_equal(times_after(days.values, 5), expected)
    seasons = find_seasons("calendar", days.values, data.series.years, data.series.values)
    assert seasons[-1] == 5.0


def test_a_holiday_is_a_gap_of_weekdays(tmp_path):
    days = pd.date_range("2001-01-01", periods=COUNT, freq="B").delete(33)
    path = table(tmp_path, time=days, y=noise(COUNT - 1))
    assert read_field(FieldConfig(path=path, variable="y")).breakpoints == (33,)


def test_a_year_of_months_has_twelve_steps_beside_another_season():
    steps = np.arange(600)
    times = pd.date_range("1950-01-01", periods=600, freq="MS").values
    waves = 5 * np.cos(2 * np.pi * steps / 12) + 4 * np.cos(2 * np.pi * steps / 17)
    seasons = find_seasons("search", times, 1950 + steps / 12, (waves + noise(600))[:, None])
    assert seasons == (12.0, 17.0)


FORCING = np.random.default_rng(3).standard_normal(COUNT)


@pytest.mark.parametrize(
    ("field", "driver"),
    [
        (DAYS, DAYS + pd.Timedelta("12h")),
        (DAYS + pd.Timedelta("23h"), DAYS),
        (
            pd.date_range("1980-01-31", periods=COUNT, freq="ME"),
            pd.date_range("1980-01-01", periods=COUNT, freq="MS"),
        ),
        (
            pd.date_range("1980-01-01", periods=COUNT, freq="MS"),
            pd.date_range("1980-01-16", periods=COUNT, freq="MS") - pd.Timedelta("15D"),
        ),
        (
            pd.date_range("1950-03-31", periods=COUNT, freq="QE"),
            pd.date_range("1950-01-01", periods=COUNT, freq="3MS") + pd.DateOffset(months=2),
        ),
        (DAYS, DAYS),
    ],
)
def test_drivers_of_the_same_month_or_day_belong_together(tmp_path, field, driver):
    path = table(tmp_path, time=field, y=noise())
    forcing = table(tmp_path, "forcing.csv", time=driver, co2=FORCING)
    config = FieldConfig(
        path=path, variable="y", drivers=[{"variable": "co2", "path": str(forcing)}]
    )
    read = read_drivers(config, read_field(config).times.isel(time=slice(0, -1)))
    np.testing.assert_array_equal(read[:, 0], FORCING[: COUNT - 1])


@pytest.mark.parametrize(
    ("unit", "factor", "refused"), [("ppm", 1.0, ""), ("1", 1e-6, ""), ("kg", 1.0, "unit kg")]
)
def test_a_driver_has_the_unit_of_the_training(tmp_path, unit, factor, refused):
    def config(name, unit, factor):
        columns = {f"co2 [{unit}]": factor * FORCING, "co2 of others": FORCING}
        path = table(tmp_path, name, time=DAYS, y=noise(), **columns)
        return FieldConfig(path=path, variable="y", drivers=[{"variable": "co2"}])

    first = config("first.csv", "ppm", 1.0)
    trained, other = field_facts(first), config("other.csv", unit, factor)
    assert [d.level for d in compare(trained, field_facts(other))] == (
        ["error"] if refused else [] if unit == "ppm" else ["convert"]
    )
    times = read_field(first).times
    if refused:
        with pytest.raises(DataError, match=refused):
            read_drivers(other, times, trained=trained)
        return
    read = read_drivers(other, times, trained=trained)
    np.testing.assert_allclose(read, read_drivers(first, times))


def test_a_driver_of_complex_numbers_is_refused(tmp_path):
    path = table(tmp_path, time=DAYS, y=noise(), co2=FORCING.astype(complex))
    config = FieldConfig(path=path, variable="y", drivers=[{"variable": "co2"}])
    with pytest.raises(DataError, match="co2"):
        read_drivers(config, read_field(config).times)


def test_the_column_of_times_is_no_series(tmp_path):
    path = table(tmp_path, time=DAYS, y=noise())
    with pytest.raises(DataError, match="time is a coordinate"):
        field_facts(FieldConfig(path=path, variable="time"))


def test_a_driver_backwards_in_time_is_refused(tmp_path):
    path = table(tmp_path, time=DAYS, y=noise())
    backwards = xr.Dataset({"co2": ("time", FORCING)}, {"time": DAYS[::-1]})
    backwards.to_netcdf(tmp_path / "forcing.nc", engine="h5netcdf")
    drivers = [{"variable": "co2", "path": str(tmp_path / "forcing.nc")}]
    config = FieldConfig(path=path, variable="y", drivers=drivers)
    with pytest.raises(DataError, match="goes backward"):
        read_drivers(config, read_field(config).times)


@pytest.mark.parametrize(
    ("drivers", "said"),
    [
        ([{"variable": "y"}], "which nobody knows"),
        ([{"variable": "co2"}, {"variable": "co2"}], "listed twice"),
    ],
)
def test_drivers_that_are_the_forecast_or_listed_twice_are_refused(drivers, said):
    with pytest.raises(ValueError, match=said):
        FieldConfig(path="y.csv", variable="y", drivers=drivers)


def test_a_season_listed_twice_is_refused():
    with pytest.raises(ValueError, match="a period twice"):
        ForecastingConfig(data={"path": "y.csv", "variable": "y"}, season=[7, 7])


def test_named_series_of_other_lengths_are_refused_and_cells_are_left_out(tmp_path):
    ends = {"a": COUNT, "b": COUNT, "c": 90}
    rows = [
        pd.DataFrame({"time": DAYS[:end], "id": name, "y": noise(end)})
        for name, end in ends.items()
    ]
    path = tmp_path / "panel.csv"
    pd.concat(rows).to_csv(path, index=False)
    with pytest.raises(DataError, match="1 of 3 series have no value at some times: c"):
        read_field(FieldConfig(path=path, variable="y"))
    values = np.stack([noise(), noise(seed=1)], axis=1)
    values[90:, 0] = np.nan
    grid = xr.Dataset({"y": (("time", "x"), values)}, {"time": DAYS, "x": [0.0, 1.0]})
    grid.to_netcdf(tmp_path / "grid.nc", engine="h5netcdf")
    data = read_field(FieldConfig(path=tmp_path / "grid.nc", variable="y"))
    assert data.grid.values.tolist() == [False, True]


def forecast_of(folder, path):
    """Return the forecast of a short job on a table, from its saved surrogate."""
    config = ForecastingConfig(
        data={"path": path, "variable": "y"},
        inputs=4,
        leads=4,
        forecaster="damped_anomaly",
        model={"name": "none"},
        baselines=[],
    )
    run, job = RunDirectory.create(folder / "runs", "series", config), ForecastingJob()
    job.train(config, run)
    job.predict(run.path, path, folder / "out.nc")
    with xr.open_dataset(folder / "out.nc", engine="h5netcdf") as out:
        return out.load()


@pytest.mark.parametrize("offset", [1e7, 1e9])
def test_a_large_mean_does_not_round_the_forecast(tmp_path, offset):
    days, values = pd.date_range("2001-01-01", periods=300), np.cumsum(noise(300) - 10) / 4
    plain = forecast_of(tmp_path, table(tmp_path, time=days, y=values))
    moved = forecast_of(tmp_path, table(tmp_path, time=days, y=values + offset))
    for name in ("y", "y_low", "y_high"):
        np.testing.assert_allclose(moved[name] - offset, plain[name], atol=1e-5)
    assert plain["y"].dtype == np.float32


def test_small_series_of_a_panel_are_stored_as_exactly_as_large_ones(tmp_path):
    days = pd.date_range("2001-01-01", periods=120)
    sizes = np.geomspace(1, 1e6, 120)
    values = sizes * (1 + 0.01 * np.stack([noise(seed=i) - 10 for i in range(120)], axis=1))
    names = [f"s{i:03}" for i in range(120)]
    rows = pd.DataFrame(values, index=days, columns=names).stack().reset_index()
    rows.columns = ["time", "id", "y"]
    rows.to_csv(tmp_path / "panel.csv", index=False)
    out = forecast_of(tmp_path, tmp_path / "panel.csv")
    np.testing.assert_allclose(out["y"].values / sizes, 1.0, atol=0.03)


@pytest.mark.parametrize(
    ("unit", "date"), [("s", "2001-01-01T00"), ("ms", "2001-01-01T00"), ("ns", "2001-01-01T00")]
)
def test_dates_written_as_numbers_are_told(tmp_path, unit, date):
    numbers = DAYS.to_numpy().astype(f"M8[{unit}]").astype(np.int64)
    path = table(tmp_path, time=numbers, y=noise())
    config = ForecastingConfig(data={"path": path, "variable": "y"}, inputs=6, leads=2)
    (warning,) = field_warnings(read_field(config.data), config)
    assert f"{unit} since 1970 ({date}" in warning


@pytest.mark.parametrize("first", [0.0, 12345.0, 1e9 + 0.5, 1e13])
def test_plain_numbers_are_no_dates(tmp_path, first):
    """Steps, days of a spreadsheet, parts of a second, and numbers beyond the year 2106."""
    path = table(tmp_path, time=first + np.arange(COUNT), y=noise())
    config = ForecastingConfig(data={"path": path, "variable": "y"}, inputs=6, leads=2)
    assert not field_warnings(read_field(config.data), config)
