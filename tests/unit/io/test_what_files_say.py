"""What files say of dims, times and values holds whatever the names, and nothing is guessed."""

import h5py
import numpy as np
import pytest
import xarray as xr

import scitoolkit
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import CampaignOptions, open_campaign
from scitoolkit.io.campaign.survey import survey
from scitoolkit.io.formats.base import format_of
from scitoolkit.io.loader.packing import Packing

RANDOM = np.random.default_rng(0)


def wave(times=12, y=5, x=6, seed=0):
    phases = np.arange(x) / x + 0.1 * np.arange(times)[:, None, None] + seed
    return np.sin(2 * np.pi * phases) + 0.1 * np.arange(y)[:, None]


def save(path, values, dims=("time", "y", "x"), coords=None, attrs=None, name="u"):
    dataset = xr.Dataset({name: (dims, values)}, coords or {})
    for key, value in (attrs or {}).items():
        dataset[key].attrs.update(value)
    dataset.to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.parametrize("name", ["time_counter", "valid_time", "ocean_time", "Time", "q", "lev"])
@pytest.mark.parametrize("how", ["dates", "axis", "standard_name", "units"])
def test_a_time_by_metadata_is_the_time_whatever_its_name(tmp_path, name, how):
    stamps = {"dates": np.datetime64("2001-01-01", "ns") + np.arange(12) * np.timedelta64(1, "D")}
    attrs = {
        "axis": {"axis": "T"},
        "standard_name": {"standard_name": "time"},
        "units": {"units": "hours since 1900-01-01", "calendar": "noleap"},
    }
    for run in range(3):
        coords = {name: stamps.get(how, 30 * run + np.arange(12.0))}
        if how == "dates":
            coords[name] = coords[name] + np.timedelta64(30 * run, "D")
        named = {name: attrs[how]} if how in attrs else {}
        save(tmp_path / f"run{run}.nc", wave(seed=run), (name, "y", "x"), coords, named)
    campaign = open_campaign(tmp_path)
    assert campaign.describe()["simulations"] == 3
    assert campaign.describe()["rows"] == 36


def test_two_times_are_asked_for(tmp_path):
    values = np.zeros((4, 3, 5))
    coords = {"init": np.arange(4.0), "lead": np.arange(3.0)}
    since = {"units": "days since 2000-01-01"}
    attrs = {"init": since, "lead": since}
    path = save(tmp_path / "a.nc", values, ("init", "lead", "x"), coords, attrs)
    with pytest.raises(DataError, match="sample_dim"):
        open_campaign(path)


@pytest.mark.parametrize("name", ["number", "realization", "member_id", "Member"])
def test_members_of_an_ensemble_are_simulations(tmp_path, name):
    values = np.stack([wave(seed=k) for k in range(4)], 1)
    path = save(tmp_path / "a.nc", values, ("time", name, "lat", "lon"))
    assert open_campaign(path).describe()["simulations"] == 4


COMPLEX = wave() + 1j * wave(seed=0.3)


@pytest.mark.parametrize("kind", ["<c8", "<c16", ">c8"])
@pytest.mark.parametrize("chunks", [None, (4, 5, 3)])
@pytest.mark.parametrize("suffix", ["h5", "npy", "zarr"])
def test_complex_numbers_are_two_channels(tmp_path, kind, chunks, suffix):
    values = COMPLEX.astype(kind)
    path = tmp_path / f"psi.{suffix}"
    if suffix == "h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("psi", data=values, chunks=chunks)
    elif suffix == "npy":
        np.save(path, values)
    else:
        import zarr

        little, dims = values.astype(kind.replace(">", "<")), ["time", "y", "x"]
        zarr.open_group(path, mode="w").create_array(
            "psi", data=little, chunks=chunks or "auto", dimension_names=dims
        )
    dims = {"dims": ["time", "y", "x"]}
    campaign = scitoolkit.open_campaign(path, **dims)
    name = next(iter(campaign.found.names))
    assert list(campaign.found.channels) == [f"{name}_real", f"{name}_imag"]
    read = np.concatenate([b["x"] for b in campaign.loader(batch_size=5, shuffle=False)])[:, 0]
    assert np.array_equal(read[:, 0] + 1j * read[:, 1], values[:-1])
    assert np.array_equal(campaign.dataset(0)[name].values, values)
    assert np.array_equal(campaign.channels(0)[f"{name}_imag"].values, values.imag)
    one = scitoolkit.open_campaign(path, [f"{name}_imag"], **dims)
    assert np.array_equal(one.windows().read(np.arange(11))["x"][:, 0, 0], values.imag[:-1])


@pytest.mark.parametrize("endings", [("_real", "_imag"), ("_re", "_im"), (".real", ".imag")])
@pytest.mark.parametrize("order", [1, -1])
def test_pairs_of_real_variables_are_the_channels_of_complex_numbers(tmp_path, endings, order):
    parts = {f"psi{e}": p for e, p in zip(endings, (COMPLEX.real, COMPLEX.imag), strict=True)}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, values in list(parts.items())[::order]:
            file[name] = values
    campaign = scitoolkit.open_campaign(tmp_path / "a.h5", ["psi"], dims=["time", "y", "x"])
    assert list(campaign.found.channels) == ["psi_real", "psi_imag"]
    read = campaign.windows().read(np.arange(11))["x"][:, 0]
    assert np.array_equal(read[:, 0] + 1j * read[:, 1], COMPLEX[:-1])


def test_half_of_a_pair_is_no_complex_number(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["psi_real"] = wave()
        file["psi_imag"] = wave(x=4)
    with pytest.raises(DataError, match="'psi' not found"):
        open_campaign(tmp_path / "a.h5", ["psi"], CampaignOptions(dims=["time", "y", "x"]))


@pytest.mark.parametrize("at", [3, 8])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_missing_times_are_refused(tmp_path, at, scale):
    times = scale * np.delete(np.arange(14.0), [at, at + 1])
    path = save(tmp_path / "a.nc", wave(), coords={"time": times})
    with pytest.raises(DataError, match="times are missing between rows"):
        open_campaign(path)


def test_months_and_varying_steps_have_no_gap(tmp_path):
    months = np.datetime64("2001-01", "M") + np.arange(12)
    save(tmp_path / "months.nc", wave(), coords={"time": months.astype("datetime64[ns]")})
    steps = np.cumsum(RANDOM.uniform(0.02, 0.15, 12))
    save(tmp_path / "cfl.nc", wave(), coords={"time": steps})
    for name in ("months.nc", "cfl.nc"):
        assert open_campaign(tmp_path / name).describe()["rows"] == 12


def test_bounds_and_other_grids_are_not_learned_and_are_told(tmp_path):
    dataset = xr.Dataset(
        {
            "lat_bnds": (("time", "lat", "bnds"), np.zeros((12, 5, 2))),
            "tas": (("time", "lat", "lon"), wave()),
            "staggered": (("time", "lat", "lon_u"), wave(x=7)),
            "forcing": (("time",), np.arange(12.0)),
        },
        {"lat": ("lat", np.arange(5.0), {"bounds": "lat_bnds"}), "lon": np.arange(6.0)},
    )
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    told = survey([str(tmp_path / "a.nc")])
    remarks = "\n".join(told.remarks)
    assert told.moving == ["staggered"] or told.moving == ["tas"]
    for name in {"tas", "staggered", "forcing", "lat_bnds"} - set(told.moving):
        assert name in remarks


@pytest.mark.parametrize("missing", [1e20, -9.99e33, 40000.5, -32769])
def test_missing_values_that_the_stored_type_cannot_hold(missing):
    attrs = {"scale_factor": 1e-3, "missing_value": np.float64(missing)}
    stored = np.array([-32768, 0, 32767], "i2")
    np.testing.assert_allclose(Packing.of(stored.dtype, attrs).unpack(stored), stored * 1e-3)


def test_a_large_offset_is_added_in_float64():
    attrs = {"scale_factor": 1e-3, "add_offset": 101325.0}
    stored = np.arange(-5, 5, dtype="i2")
    values = Packing.of(stored.dtype, attrs).unpack(stored)
    np.testing.assert_allclose(values, 101325 + stored * 1e-3, rtol=0, atol=1e-9)


def test_a_file_without_numbers_is_refused(tmp_path):
    import h5py

    h5py.File(tmp_path / "a.h5", "w").close()
    with pytest.raises(DataError, match="no array of numbers"):
        open_campaign(tmp_path / "a.h5")


@pytest.mark.parametrize("unit", ["m s-1", "m/s", "m s**-1", "meters/second"])
def test_spellings_of_one_unit_are_the_same_unit(tmp_path, unit):
    save(tmp_path / "run0.nc", wave(), attrs={"u": {"units": "m s-1"}})
    save(tmp_path / "run1.nc", wave(seed=1), attrs={"u": {"units": unit}})
    assert open_campaign(tmp_path).index.num_simulations == 2


@pytest.mark.parametrize("other", ["km/h", "m", "", "K"])
def test_another_unit_is_refused(tmp_path, other):
    save(tmp_path / "run0.nc", wave(), attrs={"u": {"units": "m s-1"}})
    save(tmp_path / "run1.nc", wave(seed=1), attrs={"u": {"units": other}})
    with pytest.raises(DataError, match="unit"):
        open_campaign(tmp_path)


@pytest.mark.parametrize("dim", ["ncells", "cell", "nod2", "values", "points"])
@pytest.mark.parametrize("how", ["CDI", "mesh", "angles"])
def test_numbered_cells_are_refused_unless_asked_for(tmp_path, dim, how):
    stated = {"CDI": {"CDI_grid_type": "unstructured"}, "mesh": {"mesh": "m", "location": "face"}}
    coords = {"time": np.arange(12.0)}
    attrs = {"u": stated.get(how, {})}
    if how == "angles":
        coords |= {"clat": (dim, np.linspace(-90, 90, 50)), "clon": (dim, np.linspace(0, 90, 50))}
        attrs |= {"clat": {"units": "degrees_north"}, "clon": {"standard_name": "longitude"}}
    save(tmp_path / "a.nc", RANDOM.random((12, 50)), ("time", dim), coords, attrs)
    with pytest.raises(DataError, match=f"unstructured mesh: {dim}"):
        open_campaign(tmp_path / "a.nc")
    assert open_campaign(tmp_path / "a.nc", ["u"], CampaignOptions(grid=[dim])).index.num_rows == 12


@pytest.mark.parametrize("ends", ["{0}01-{1}12", "{0}0101-{1}1231", "{0}01010130-{1}12312230"])
def test_members_in_files_of_years_are_simulations(tmp_path, ends):
    for member, part in np.ndindex(3, 2):
        years = ends.format(1850 + 2 * part, 1851 + 2 * part)
        times = ("time", 30.0 * np.arange(24 * part, 24 * part + 24))
        attrs = {"time": {"units": "days since 1850-01-01", "calendar": "360_day"}}
        path = tmp_path / f"tas_Amon_M_historical_r{member + 1}i1p1f1_gn_{years}.nc"
        save(path, wave(24, seed=member), coords={"time": times}, attrs=attrs)
    assert open_campaign(tmp_path).index.bounds.tolist() == [0, 48, 96, 144]


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_restarts_that_repeat_a_row_are_refused_where_its_values_differ(tmp_path, parts):
    whole = wave(10 * parts + 1)
    for part in range(parts):
        coords = {"time": 0.5 * np.arange(10 * part, 10 * part + 11)}
        save(tmp_path / f"run_{part}.nc", whole[10 * part : 10 * part + 11], coords=coords)
    assert open_campaign(tmp_path).index.bounds.tolist() == [0, 10 * parts + 1]
    for part in range(parts):
        coords = {"time": 0.5 * np.arange(10 * part, 10 * part + 11)}
        save(tmp_path / f"run_{part}.nc", wave(11, seed=part / 3), coords=coords)
    with pytest.raises(DataError, match="as a restart does"):
        open_campaign(tmp_path)
    found = open_campaign(tmp_path, ["u"], CampaignOptions(files="simulations"))
    assert found.index.num_simulations == parts


@pytest.mark.parametrize(("alias", "calendar"), [("360", "360_day"), ("365", "noleap")])
def test_calendars_by_their_short_names(tmp_path, alias, calendar):
    unit = "months since 1960-01-01" if alias == "360" else "days since 1960-01-01"
    attrs = {"T": {"units": unit, "calendar": alias}}
    save(tmp_path / "a.nc", wave(24), ("T", "y", "x"), {"T": 0.5 + np.arange(24)}, attrs)
    assert open_campaign(tmp_path / "a.nc").times.values[0].calendar == calendar
    with format_of(tmp_path / "a.nc").open_dataset(tmp_path / "a.nc") as dataset:
        assert dataset["T"].values[0].calendar == calendar


@pytest.mark.parametrize("seed", range(12))
def test_names_and_order_of_dims_do_not_matter_where_attributes_say_it(tmp_path, seed):
    random = np.random.default_rng(seed)
    time, lat, lon = random.permutation(["a", "lev", "x", "time_index", "q", "obs"])[:3]
    attrs = {
        time: {"units": "hours since 2000-01-01", "axis": "T"},
        lat: {"units": "degrees_north"},
        lon: {"standard_name": "longitude", "units": "degrees_east"},
    }
    coords = {time: np.arange(12.0), lat: np.linspace(-40, 40, 5), lon: 60.0 * np.arange(6)}
    values = wave()
    save(tmp_path / "a.nc", values, (time, lat, lon), coords, attrs)
    campaign = open_campaign(tmp_path / "a.nc")
    channel = campaign.channels["u"]
    assert (channel.array.roles, campaign.index.num_rows) == (("@time", lat, lon), 12)


@pytest.mark.parametrize("seed", range(200))
def test_random_unmapped_rows_are_named(tmp_path, seed):
    random = np.random.default_rng(seed)
    first, last = sorted(random.choice(30, 2, replace=False).tolist())
    values = random.random((30, 4, 5)) + 5
    with h5py.File(tmp_path / "values.h5", "w") as file:
        file["u"] = values
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    source = h5py.VirtualSource(str(tmp_path / "values.h5"), "u", values.shape)
    if first:
        layout[:first] = source[:first]
    layout[last:] = source[last:]
    columns = int(random.integers(0, 5))  # the first columns of the hole are mapped
    if columns:
        layout[first:last, :, :columns] = source[first:last, :, :columns]
    path = tmp_path / "run.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_virtual_dataset("u", layout)
        for axis, name in enumerate(("time", "y", "x")):
            dataset.dims[axis].label = name
    with pytest.raises(DataError, match=f"rows {first} to {last - 1} of the virtual dataset"):
        list(scitoolkit.open_campaign(path, ["u"]).loader(batch_size=4))


@pytest.mark.parametrize("name", ["n", "lev", "q"])
def test_init_takes_the_dim_that_counts_samples(tmp_path, name):
    from scitoolkit.core.starter import DataToStart
    from scitoolkit.emulation.starter import starter

    path = str(save(tmp_path / "a.nc", wave(times=40), (name, "yy", "xx")))
    with pytest.raises(DataError):
        starter(DataToStart([path], [path]))
    text = starter(DataToStart([path], [path], sample_dim=name))
    assert f"sample_dim: {name}" in text
    assert "40 rows, grid 5 x 6" in text
    with pytest.raises(DataError, match="no dim 'other'"):
        starter(DataToStart([path], [path], sample_dim="other"))


def test_init_splits_where_times_are_missing_and_says_so(tmp_path):
    from scitoolkit.core.starter import DataToStart
    from scitoolkit.emulation.starter import starter

    times = np.r_[0:20, 25:45].astype(float)
    path = str(save(tmp_path / "a.nc", wave(times=40), coords={"time": times}))
    text = starter(DataToStart([path], [path]))
    assert "gaps: split" in text
    assert "gaps in the times: 1" in text
