"""Parameters of simulations: where they are found, what is refused, and the split by a range."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.campaign import open_campaign
from scitoolkit.io.campaign.index import SampleIndex
from scitoolkit.io.campaign.open import open_campaign as open_loader
from scitoolkit.io.campaign.parameters import parameter_values, with_parameters
from scitoolkit.io.campaign.split import CampaignSplit, split_campaign
from scitoolkit.io.fields import write_fields

NU = [0.1, 0.01, 0.4, 0.02]


def fields(rows=5):
    return (("time", "x"), np.random.default_rng(0).random((rows, 4), "f4"))


@pytest.fixture(params=["attribute", "scalar", "table", "well", "groups", "vector"])
def campaign(request, tmp_path):
    """Four simulations whose `nu` is stated in one of six ways, and the table where it is one."""
    way, table = request.param, None
    if way in ("attribute", "scalar", "table"):
        for i, nu in enumerate(NU):
            data = xr.Dataset({"u": fields()})
            if way == "attribute":
                data.attrs["nu"] = nu
            elif way == "scalar":
                data["nu"] = nu
            write_fields(data, tmp_path / f"run{i}.nc")
        if way == "table":
            table = tmp_path / "runs.csv"
            lines = [f"run{i}.nc,{nu}" for i, nu in reversed(list(enumerate(NU)))]
            table.write_text("\n".join(["name,nu", *lines, "run9.nc,7"]))
        return open_campaign(str(tmp_path / "run*.nc"), ["u"]), table
    with h5py.File(tmp_path / "all.h5", "w") as file:
        values = np.random.default_rng(0).random((4, 5, 4), "f4")
        if way == "groups":
            for i, nu in enumerate(NU):
                file[f"{i:04d}/data"] = values[i, ..., None]
                file[f"{i:04d}/grid/x"] = np.arange(4.0)
                file[f"{i:04d}/grid/t"] = np.arange(5.0)
                file[f"{i:04d}"].attrs["nu"] = nu
            return open_campaign(tmp_path / "all.h5", ["data"]), None
        if way == "vector":
            for part in ("train/u", "valid/u", "test/u"):
                file[part] = values
            for part in ("train/nu", "valid/nu", "test/nu"):
                file[part] = np.array(NU)
            return open_campaign(tmp_path / "all.h5", ["u"]), None
    for i, nu in enumerate(NU):
        with h5py.File(tmp_path / f"w{i}.hdf5", "w") as file:
            file.attrs.update({"n_trajectories": 1, "grid_type": "cartesian"})
            file["t0_fields/u"] = values[i : i + 1]
            file["t0_fields/u"].attrs.update(
                {"sample_varying": True, "time_varying": True, "dim_varying": [True]}
            )
            file["dimensions/time"], file["dimensions/x"] = np.arange(5.0), np.arange(4.0)
            file["scalars/nu"] = nu
    return open_campaign(str(tmp_path / "w*.hdf5"), ["u"]), None


@pytest.mark.parametrize("unit", ["mm", "s"])
def test_parameters_of_files_in_other_units_are_converted_or_refused(tmp_path, unit):
    for i, nu in enumerate(NU):
        stated = (1e3 * nu, unit) if i == 2 else (nu, "m")
        data = xr.Dataset({"u": fields(), "nu": ((), stated[0], {"units": stated[1]})})
        write_fields(data, tmp_path / f"run{i}.nc")
    found = open_campaign(str(tmp_path / "run*.nc"), ["u"])
    if unit == "s":
        with pytest.raises(DataError, match="nu is in s, and in m elsewhere"):
            with_parameters(found, {"nu": "linear"})
        return
    scaled = with_parameters(found, {"nu": "linear"})
    assert scaled.parameters["nu"] == pytest.approx(NU)
    assert scaled.template()["nu"].attrs["units"] == "m"
    assert with_parameters(found, {"nu": "log"}).template()["nu"].attrs["units"] == "log10(m)"


def test_the_parameter_is_found_where_it_stands(campaign):
    found, table = campaign
    values = parameter_values(found, "nu", table)
    assert values.tolist() == NU * (len(values) // 4)
    scaled = with_parameters(found, {"nu": "log"}, table)
    assert np.allclose(scaled.parameters["nu"], np.log10(values))
    assert scaled.describe()["parameters"] == {"nu": [np.log10(0.01), np.log10(0.4)]}


def write(tmp_path, **attributes):
    for i in range(3):
        data = xr.Dataset({"u": fields()}, attrs={k: v[i] for k, v in attributes.items()})
        data.attrs = {k: v for k, v in data.attrs.items() if v is not None}
        write_fields(data, tmp_path / f"run{i}.nc")
    return open_campaign(str(tmp_path / "run*.nc"), ["u"])


@pytest.mark.parametrize(
    ("values", "name", "message"),
    [
        ([1.0, None, 2.0], "nu", "no nu for run1 of 3"),
        (
            [1.0, 2.0, 3.0],
            "nus",
            r"scalar or column nus.*Fix: data.parameters=\[nu\]",
        ),
        ([1.0, float("nan"), 3.0], "nu", "not a finite number for run1"),
        (["low", "low", "high"], "nu", "no attribute, scalar or column nu"),
    ],
)
def test_a_parameter_that_is_missing_is_refused_by_its_simulation(tmp_path, values, name, message):
    found = write(tmp_path, nu=values)
    with pytest.raises(DataError, match="(?s)" + message):
        parameter_values(found, name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,nu\nrun0,1\nrun0,2\nrun1,1\nrun2,1", "lines 2 and 3"),
        ("name,nu\nrun0,1\nrun1,1", "no nu for run2"),
        ("name,nu\na,1\nb,1", "none of the simulations"),
        ("name,nu\nrun0,1,2\nrun1,1\nrun2,1", "3 columns"),
        ("name,nu\nrun0,one\nrun1,1\nrun2,1", "not a finite number for run0"),
        ("", "no lines"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, text, message):
    found = write(tmp_path)
    (tmp_path / "runs.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        parameter_values(found, "nu", tmp_path / "runs.csv")


def test_a_logarithm_needs_positive_values(tmp_path):
    with pytest.raises(DataError, match="nu is 0 in simulation run1"):
        with_parameters(write(tmp_path, nu=[1.0, 0.0, 2.0]), {"nu": "log"})


def test_other_programs_get_the_parameters_beside_the_fields(tmp_path):
    write(tmp_path, nu=[1.0, 2.0, 3.0])
    found = open_loader(str(tmp_path / "run*.nc"), ["u"], parameters=["nu"])
    assert [float(found.dataset(i)["nu"]) for i in range(3)] == [1.0, 2.0, 3.0]
    batch = found.windows(2, 1).read(np.array([0, 3, 8]))
    assert batch["x"].shape == (3, 2, 1, 4)
    assert batch["parameters"].ravel().tolist() == [1.0, 2.0, 3.0]
    assert batch["parameters"].dtype == batch["x"].dtype
    part = found.split(by="parameter", parameter="nu", test_range=(3, 4))
    assert part == {"train": [range(0, 5)], "validation": [range(5, 10)], "test": [range(10, 15)]}


def test_ranges_of_a_parameter_divide():
    index, values = SampleIndex(range(5), [2] * 5), np.array([1.0, 2, 3, 4, 5])
    config = CampaignSplit(
        by="parameter", parameter="Ra", test_range=(2.5, 3), validation_range=(5, 9)
    )
    parts = split_campaign(index, 2, config, own_test=True, parameter=values)
    assert [[block.start // 2 for block in parts[n]] for n in ("train", "validation", "test")] == [
        [0, 1, 3],
        [4],
        [2],
    ]
    outside = CampaignSplit(by="parameter", parameter="Ra", test_range=(6, 7))
    with pytest.raises(ConfigError, match=r"no simulation has Ra in \[6.0, 7.0\].*1 to 5"):
        split_campaign(index, 2, outside, own_test=True, parameter=values)
    both = config.model_copy(update={"validation_range": (3.0, 4.0)})
    with pytest.raises(ConfigError, match="Ra = 3 is in both ranges"):
        split_campaign(index, 2, both, own_test=True, parameter=values)


@pytest.mark.parametrize(
    "keys",
    [
        {"by": "parameter"},
        {"parameter": "nu"},
        {"test_range": (0, 1)},
        {"by": "parameter", "parameter": "nu"},
        {"by": "parameter", "parameter": "nu", "test_range": (2, 1)},
        {"by": "parameter", "parameter": "nu", "test_range": (1, 2), "test": 3},
        {"by": "parameter", "parameter": "nu", "test_range": (1, 2), "gap": 3},
    ],
)
def test_a_split_by_parameter_is_whole(keys):
    with pytest.raises(ValueError, match=r"parameter|empty"):
        CampaignSplit(**keys)


def test_a_name_with_a_decimal_point_matches_no_other_simulation(tmp_path):
    for nu in (0.1, 0.2):
        write_fields(xr.Dataset({"u": fields()}), tmp_path / f"nu_{nu}.nc")
    found = open_campaign(str(tmp_path / "nu_*.nc"), ["u"])
    table = tmp_path / "runs.csv"
    table.write_text("name,nu\nnu_0.3,3\nnu_0.1,1\nnu_0.2.nc,2")
    assert parameter_values(found, "nu", table).tolist() == [1.0, 2.0]
    table.write_text("name,nu\nnu_0.1,1\nnu_0.3,3")
    with pytest.raises(DataError, match=r"no nu for nu_0\.2"):
        parameter_values(found, "nu", table)


@pytest.mark.parametrize("rows", [10, 3])
def test_a_vector_along_another_dim_is_no_parameter(tmp_path, rows):
    values = np.random.default_rng(0).random((3, rows, 8), "f4")
    data = xr.Dataset({"u": (("member", "time", "x"), values)}, {"time": np.arange(rows + 0.0)})
    data["forcing"], data["nu"] = ("time", np.arange(rows) * 100.0), ("member", np.arange(3.0))
    data.to_netcdf(tmp_path / "m.nc", engine="h5netcdf")
    with pytest.raises(DataError, match=rf"variable forcing.*{rows} values along time"):
        open_loader(tmp_path / "m.nc", ["u"], parameters=["forcing"])
    found = open_loader(tmp_path / "m.nc", ["u"], parameters=["nu"]).found
    assert found.parameters["nu"].tolist() == [0, 1, 2]


def test_a_vector_of_another_length_is_no_parameter(tmp_path):
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file["u"], file["forcing"] = np.zeros((3, 10, 8)), np.arange(10.0)
    with pytest.raises(DataError, match=r"variable forcing.*10 values"):
        open_loader(
            tmp_path / "m.h5", ["u"], parameters=["forcing"], dims={"u": ["member", "time", "x"]}
        )
