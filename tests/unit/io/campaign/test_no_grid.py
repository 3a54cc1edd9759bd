"""Numbered cells, particles and numbered arrays are never learned as a grid or as variables."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.survey import survey

RNG = np.random.default_rng(0)
STEPS, CELLS = 12, 20


def values(*shape):
    return RNG.standard_normal(shape).astype("f4")


def write(path, variables, attrs=None):
    data = xr.Dataset(variables, {"time": 3600.0 * np.arange(STEPS)}, attrs)
    data.time.attrs["units"] = "seconds since 2000-01-01"
    data.to_netcdf(path, engine="h5netcdf")
    return path


def of_cells(dim):
    return {"u": (("time", dim), values(STEPS, CELLS))}


DEGREES = {"units": "degrees_north"}, {"units": "degrees_east"}
MESHES = {
    "SCHISM": {
        **of_cells("nSCHISM_hgrid_node"),
        "SCHISM_hgrid_node_x": ("nSCHISM_hgrid_node", values(CELLS)),
        "SCHISM_hgrid_node_y": ("nSCHISM_hgrid_node", values(CELLS)),
    },
    "FVCOM": {
        "u": (("time", "siglay", "tri"), values(STEPS, 4, CELLS)),
        "nv": (("three", "tri"), np.ones((3, CELLS), "i4")),
    },
    "JULES": {
        "u": (("time", "y", "x"), values(STEPS, 1, CELLS)),
        "latitude": (("y", "x"), values(1, CELLS), DEGREES[0]),
        "longitude": (("y", "x"), values(1, CELLS), DEGREES[1]),
    },
    "name": of_cells("ncol"),
}


@pytest.mark.parametrize("name", MESHES)
def test_dims_that_number_cells_are_refused_unless_the_grid_names_them(tmp_path, name):
    path = write(tmp_path / "a.nc", MESHES[name])
    dim = MESHES[name]["u"][0][-1]
    for opened in (lambda: open_campaign(path, ["u"]), lambda: survey([str(path)])):
        with pytest.raises(DataError, match=rf"{dim} numbers its cells.*data.grid=\[{dim}\]"):
            opened()
    np.testing.assert_array_equal(
        open_campaign(path, ["u"], grid=list(MESHES[name]["u"][0][1:])).dataset(0).u,
        MESHES[name]["u"][1],
    )


def test_a_dim_with_a_coordinate_of_its_own_is_a_grid_whatever_lies_along_it(tmp_path):
    variables = {
        "u": (("time", "y", "x"), values(STEPS, 6, 5)),
        "x": ("x", np.arange(5.0)),
        "y": ("y", np.arange(6.0)),
        "slope_x": ("x", values(5)),
        "slope_y": ("x", values(5)),
        "kind": (("y", "x"), np.ones((6, 5), "i4")),
    }
    np.testing.assert_array_equal(
        open_campaign(write(tmp_path / "a.nc", variables), ["u"]).dataset(0).u, variables["u"][1]
    )


def gadget(file):
    file.create_group("Header").attrs["NumPart_ThisFile"] = [30, 0]
    file["PartType0/Coordinates"], file["PartType0/Density"] = values(30, 3), values(30)


def pyfr(file):
    file["soln_quad_p0"] = values(16, 4, 30)


def amber(file):
    file.attrs["Conventions"] = "AMBER"
    file["velocities"] = values(STEPS, CELLS, 3)


def exodus(file):
    file.attrs["api_version"] = np.float32(8)
    file["vals_nod_var1"], file["connect1"] = values(STEPS, CELLS), np.ones((9, 4), "i4")


def odim(file):
    file.attrs["Conventions"] = "ODIM_H5/V2_2"
    file["dataset1/data1/data"] = np.ones((9, 10), "u1")


@pytest.mark.parametrize(
    ("fill", "said"),
    [
        (gadget, r"GADGET.*particles.*arbitrary_grid"),
        (pyfr, r"PyFR.*elements of a mesh.*pyfr export"),
        (amber, r"AMBER or LAMMPS: atoms.*extended XYZ"),
        (exodus, r"Exodus.*nodes and elements.*meshio convert"),
        (odim, r"ODIM_H5: packed.*gain \* data \+ offset"),
    ],
)
def test_programs_without_a_grid_are_refused_by_name(tmp_path, fill, said):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        fill(file)
    with pytest.raises(DataError, match=said):
        survey([str(tmp_path / "a.h5")])


@pytest.mark.parametrize(
    "names",
    [
        [f"timeseries/T/{100 * k}" for k in range(5)],
        [f"HYDROBASE::rho it={64 * k} tl=0 rl=0" for k in range(5)],
        [f"rho_{k:04d}" for k in range(5)],
    ],
)
def test_arrays_that_differ_in_a_number_only_are_no_variables(tmp_path, names):
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        for name in names:
            file[name] = values(STEPS, 6, 5)
    with pytest.raises(DataError, match="differ in a number only: they look like times"):
        survey([path])
    assert len(survey([path], dims=["time", "y", "x"]).moving) == len(names)


def test_components_of_a_vector_are_variables(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("u_0", "u_1", "u_2", "p"):
            file[name] = values(STEPS, 6, 5)
    assert survey([str(tmp_path / "a.h5")]).moving == ["p", "u_0", "u_1", "u_2"]


def test_files_with_one_time_each_are_rows_of_all_their_dims(tmp_path):
    whole = values(STEPS, 4, 6, 5)
    for number in range(STEPS):
        with h5py.File(tmp_path / f"VAR{number}.h5", "w") as file:
            file["data/ux"], file["time"] = whole[number], 0.5 * number
            file["grid/x"] = np.arange(5.0)
    told = survey([str(tmp_path)])
    assert told.options.dims == ["z", "y", "x"]
    assert told.campaign.index.bounds.tolist() == [0, STEPS]
    rows = open_campaign(tmp_path, ["ux"], dims=["z", "y", "x"]).dataset(0)
    np.testing.assert_array_equal(rows.ux, whole)
    np.testing.assert_array_equal(rows.time, 0.5 * np.arange(STEPS))


def test_times_in_several_files_tell_the_first_of_two_dims_without_names(tmp_path):
    for number in range(3):
        with h5py.File(tmp_path / f"run{number}.h5", "w") as file:
            file["u"] = values(STEPS, 5)
    with pytest.raises(DataError, match="2 dims without names: time,x or y,x"):
        survey([str(tmp_path)])
    for number in range(3):
        with h5py.File(tmp_path / f"run{number}.h5", "a") as file:
            file["t"] = np.arange(STEPS) + 0.0
    assert survey([str(tmp_path)]).campaign.index.num_rows == 3 * STEPS


def test_steps_of_ioapi_count_samples(tmp_path):
    data = {
        "O3": (("TSTEP", "LAY", "ROW", "COL"), values(STEPS, 2, 6, 5)),
        "TFLAG": (("TSTEP", "VAR", "DATE-TIME"), np.ones((STEPS, 1, 2), "i4")),
    }
    xr.Dataset(data).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    told = survey([str(tmp_path / "a.nc")])
    assert told.moving == ["O3"]
    assert told.campaign.index.num_rows == STEPS


def test_of_more_than_three_dims_those_of_one_entry_are_selected(tmp_path):
    concentration = values(1, 1, STEPS, 3, 6, 5)
    dims = ("nageclass", "pointspec", "time", "height", "latitude", "longitude")
    path = write(tmp_path / "a.nc", {"mr": (dims, concentration)})
    told = survey([str(path)])
    assert told.options.select == {"nageclass": 0.0, "pointspec": 0.0}
    assert "nageclass has one entry, which is selected" in told.remarks
    rows = open_campaign(path, ["mr"], select=told.options.select).dataset(0)
    np.testing.assert_array_equal(np.squeeze(rows.mr), concentration[0, 0])
