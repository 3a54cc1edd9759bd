"""Files are joined to one simulation only where their clocks and parameters agree."""

import h5py
import numpy as np
import pytest
import xarray as xr

import scitoolkit
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import CampaignOptions, open_campaign
from scitoolkit.io.campaign.kept import training_moments
from scitoolkit.io.campaign.measure import Question
from scitoolkit.io.campaign.rows import row_sets


def files(folder, times, units=(), attrs=(), scalars=(), calendars=()):
    for i, t in enumerate(times):
        values = np.random.default_rng(i).random((len(t), 4))
        found = xr.Dataset({"u": (("time", "x"), values)}, {"time": ("time", np.asarray(t))})
        if units:
            found.time.attrs["units"] = units[i]
        if calendars:
            found.time.attrs["calendar"] = calendars[i]
        found.attrs.update(attrs[i] if attrs else {})
        found = found.assign(scalars[i] if scalars else {})
        found.to_netcdf(folder / f"part{i}.nc", engine="h5netcdf")
    return folder


def simulations(folder, **options):
    return open_campaign(folder, ["u"], CampaignOptions(**options)).index.num_simulations


FIRST, SECOND = np.arange(10.0), np.arange(10.0, 20.0)


@pytest.mark.parametrize("units", [("s", "ms"), ("days", "hours"), ("min", "s"), ("fs", "ps")])
def test_times_in_another_unit_do_not_continue(tmp_path, units):
    files(tmp_path, [FIRST, SECOND], units)
    with pytest.raises(DataError, match=r"time step|restart"):
        simulations(tmp_path)


@pytest.mark.parametrize(("units", "scale"), [(("s", "ms"), 1e3), (("day", "hours"), 24.0)])
def test_times_in_another_unit_are_converted(tmp_path, units, scale):
    files(tmp_path, [FIRST, SECOND * scale], units)
    assert simulations(tmp_path) == 1


@pytest.mark.parametrize(
    "units", [("s", "m"), ("s", ""), ("days since 2000-01-01", "days"), ("orbits", "turns")]
)
def test_times_in_units_without_a_conversion_are_refused(tmp_path, units):
    files(tmp_path, [FIRST, SECOND], units)
    with pytest.raises(DataError, match="times in unit"):
        simulations(tmp_path)


@pytest.mark.parametrize("calendars", [("noleap", "360_day"), ("standard", "noleap")])
def test_times_in_two_calendars_are_refused(tmp_path, calendars):
    files(tmp_path, [FIRST, SECOND], ["days since 2000-01-01"] * 2, calendars=calendars)
    with pytest.raises(DataError, match="calendar"):
        simulations(tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 4, 9])
def test_missing_times_are_refused(tmp_path, bad, row):
    times = FIRST.copy()
    times[row] = bad
    files(tmp_path, [FIRST, times])
    with pytest.raises(DataError, match="missing"):
        simulations(tmp_path)


def test_fill_values_of_times_are_missing(tmp_path):
    files(tmp_path, [np.array([0, 1, 2, 9999])])
    with h5py.File(tmp_path / "part0.nc", "a") as file:
        file["time"].attrs["missing_value"] = np.int64(9999)
    with pytest.raises(DataError, match="row 3 is missing"):
        simulations(tmp_path)


@pytest.mark.parametrize("name", ["nu", "Re", "amplitude", "seed"])
@pytest.mark.parametrize("values", [(0.1, 0.2), (1.0, 2.0), (1, 2), (100, 300)])
@pytest.mark.parametrize("how", ["attrs", "scalars"])
def test_files_with_other_parameters_are_other_simulations(tmp_path, name, values, how):
    files(tmp_path, [FIRST, SECOND], **{how: [{name: v} for v in values]})
    assert simulations(tmp_path) == 2
    assert simulations(tmp_path, files="parts") == 1


def test_parts_with_equal_parameters_are_joined(tmp_path):
    times = [FIRST + 10 * i for i in range(4)]
    files(tmp_path, times, attrs=[{"nu": nu} for nu in (0.1, 0.1, 0.2, 0.2)])
    assert simulations(tmp_path) == 2


@pytest.mark.parametrize(
    "attrs",
    [
        [{"set_number": 1}, {"set_number": 2}],
        [{"history": "a"}, {"history": "b"}],
        [{"writes": 10}, {"writes": 12}],
        [{"start": 0.0}, {"start": 10.0}],
        [{"nu": 0.1, "part": 0}, {"nu": 0.1, "part": 1}],
    ],
)
def test_counters_and_times_are_no_parameters(tmp_path, attrs):
    files(tmp_path, [FIRST, SECOND], attrs=attrs)
    assert simulations(tmp_path) == 1


@pytest.mark.parametrize("key", ["variant_label", "experiment_id"])
def test_names_of_simulations_keep_files_apart(tmp_path, key):
    files(tmp_path, [FIRST, SECOND], attrs=[{key: "r1"}, {key: "r2"}])
    assert simulations(tmp_path) == 2


GAPS = [
    [(0, 8), (12, 20)],
    [(0, 3), (5, 9), (20, 30)],
    [(0, 10), (11, 20)],
    [(0, 6), (7, 8), (9, 20)],
]


@pytest.mark.parametrize("stretches", GAPS)
@pytest.mark.parametrize("history", [1, 3])
@pytest.mark.parametrize("runs", [1, 2])
def test_simulations_are_split_where_times_are_missing(tmp_path, stretches, history, runs):
    times = np.concatenate([np.arange(*s, dtype=float) for s in stretches])
    files(tmp_path, [times] * runs)
    with pytest.raises(DataError, match=r"data.gaps=split"):
        simulations(tmp_path)
    campaign = scitoolkit.open_campaign(tmp_path, ["u"], gaps="split", cache=tmp_path / "cache")
    again = scitoolkit.open_campaign(tmp_path, ["u"], gaps="split", cache=tmp_path / "cache")
    assert again.found.index.breaks.tolist() == campaign.found.index.breaks.tolist()
    source = campaign.windows(history=history)
    spans = [range(start, start + history + 1) for start in source.starts.tolist()]
    every = np.tile(times, runs)
    assert all((np.diff(every[list(span)]) == 1).all() for span in spans)
    assert len(spans) == runs * sum(max(0, b - a - history) for a, b in stretches)
    assert campaign.found.index.num_simulations == runs
    for ranges in campaign.split(by="time").values():
        assert all((np.diff(every[list(part)]) == 1).all() for part in ranges)


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_a_missing_part_is_told_or_splits(tmp_path, lost):
    parts = [FIRST + 10 * k for k in range(6) if k != lost]
    files(tmp_path, parts)
    with pytest.raises(DataError, match="times are missing between"):
        simulations(tmp_path)
    campaign = open_campaign(tmp_path, ["u"], CampaignOptions(gaps="split"))
    assert campaign.index.num_simulations == 1
    assert campaign.index.breaks.tolist() == [10 * lost]
    assert simulations(tmp_path, files="simulations") == 5


@pytest.mark.parametrize("runs", [2, 3])
def test_rows_lost_between_two_parts_are_told_or_split(tmp_path, runs):
    for run in range(runs):
        for part, times in enumerate((FIRST, FIRST + 12)):
            u = np.random.default_rng([run, part]).random((10, 4))
            data = xr.Dataset({"u": (("time", "x"), u)}, {"time": times + 1000 * run})
            data.to_netcdf(tmp_path / f"run{run}_{part:03d}.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=r"times are missing between 9\.0.*run0_000.nc, and 12\.0"):
        simulations(tmp_path)
    assert simulations(tmp_path, gaps="split") == runs
    assert simulations(tmp_path, files="simulations") == 2 * runs


@pytest.mark.parametrize("overlap", [1, 3, 9])
@pytest.mark.parametrize("parts", [2, 3])
def test_restarts_that_repeat_rows_are_refused(tmp_path, overlap, parts):
    files(tmp_path, [FIRST + (10 - overlap) * k for k in range(parts)])
    with pytest.raises(DataError, match="as a restart does"):
        simulations(tmp_path)
    assert simulations(tmp_path, files="simulations") == parts


def test_simulations_far_apart_in_time_stay_apart(tmp_path):
    files(tmp_path, [FIRST, FIRST + 1000, FIRST + 5000])
    assert simulations(tmp_path) == 3


@pytest.mark.parametrize("timed", [True, False])
def test_files_of_one_sample_that_are_missing_are_a_gap(tmp_path, timed):
    for number in (0, 1, 2, 6, 7, 8):
        coords = {"time": float(number)} if timed else {}
        data = xr.Dataset({"u": (("y", "x"), np.full((8, 9), number, "f4"))}, coords)
        data.to_netcdf(tmp_path / f"out_{number:04d}.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="missing between rows 2 and 3"):
        open_campaign(tmp_path, ["u"])
    found = open_campaign(tmp_path, ["u"], CampaignOptions(gaps="split"))
    assert found.index.breaks.tolist() == [3]
    assert found.index.starts(found.index.blocks, 2).tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize("order", [("time", "member", "x"), ("member", "time", "x")])
@pytest.mark.parametrize("names", [[0, 1, 2], ["r1", "r2", "r3"], None])
def test_members_continue_in_several_files(tmp_path, order, names):
    values = np.random.default_rng(0).random((18, 3, 5))
    coords = {} if names is None else {"member": names}
    for part in range(3):
        rows = slice(6 * part, 6 * part + 6)
        data = xr.Dataset({"u": (("time", "member", "x"), values[rows])}, coords)
        data = data.assign_coords(time=np.arange(18.0)[rows]).transpose(*order)
        data.to_netcdf(tmp_path / f"part{part}.nc", engine="h5netcdf")
    campaign = scitoolkit.open_campaign(tmp_path, ["u"])
    assert campaign.found.index.bounds.tolist() == [0, 18, 36, 54]
    for member in range(3):
        np.testing.assert_array_equal(campaign.dataset(member)["u"], values[:, member])
    seen = np.concatenate([b["x"].reshape(-1, 5) for b in campaign.loader(4, horizon=0, seed=1)])
    np.testing.assert_allclose(np.sort(seen, 0), np.sort(values.reshape(-1, 5), 0))
    found = campaign.found
    measured, _ = training_moments(found, row_sets(found), found.index.blocks, Question(1, ("u",)))
    change = np.sqrt(np.mean(np.diff(values, axis=0) ** 2))
    assert measured.changes["u"].root_mean_square()[0] == pytest.approx(change, rel=1e-9)
    if names is None:
        return
    data.assign_coords(member=names[::-1]).to_netcdf(tmp_path / "part2.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="entries of member"):
        open_campaign(tmp_path, ["u"])


def test_members_that_start_again_are_other_simulations(tmp_path):
    for start in range(3):
        values = np.random.default_rng(start).random((6, 2, 5))
        data = xr.Dataset(
            {"u": (("time", "member", "x"), values)}, {"time": np.arange(6) + 2.0 * start}
        )
        data.to_netcdf(tmp_path / f"start{start}.nc", engine="h5netcdf")
    assert simulations(tmp_path) == 6


@pytest.mark.parametrize(
    ("times", "units", "text"),
    [
        ((FIRST, 3 * FIRST), ("hours since 2001-01-01",) * 2, "of 3 hours. Allowed: 1 hour, as"),
        ((FIRST, FIRST), ("hours since 2001-01-01", "days since 2001-01-01"), "of 1 day. Allowed"),
        ((FIRST, 3 * FIRST), ("s", "s"), "of 3 s. Allowed: 1 s, as"),
        ((FIRST, 3 * FIRST), (), "of 3. Allowed: 1, as"),
    ],
)
def test_another_step_is_told_in_its_unit(tmp_path, times, units, text):
    files(tmp_path, times, units)
    with pytest.raises(DataError) as error:
        open_campaign(tmp_path, ["u"])
    assert f"part1 has a time step {text}" in str(error.value)


def test_members_named_as_in_cmip_are_not_joined_over_a_gap(tmp_path):
    for member in range(3):
        values = np.random.default_rng(member).random((20, 4))
        for part in range(2):
            times = 1000.0 * member + np.arange(10.0) + 10 * part
            rows = slice(10 * part, 10 * part + 10)
            data = xr.Dataset({"u": (("time", "x"), values[rows])}, {"time": times})
            name = f"tas_day_M_hist_r{member + 1}i1p1f1_gn_20{10 + part}0101-20{10 + part}1231.nc"
            data.to_netcdf(tmp_path / name, engine="h5netcdf")
    assert open_campaign(tmp_path, ["u"], CampaignOptions(gaps="split")).index.num_rows == 60
    assert simulations(tmp_path, gaps="split") == 3
