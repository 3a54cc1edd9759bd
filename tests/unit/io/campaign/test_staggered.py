"""Fields on the faces of cells are read as the means of neighbouring faces, or refused by name."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import xarray as xr
import yaml
from program_layouts import write_layout

import scitoolkit
from scitoolkit.core.errors import DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.io.campaign import CampaignOptions, open_campaign
from scitoolkit.io.campaign.rows import row_sets

CENTRES = CampaignOptions(staggered="centres")


def write(path, variables, coordinates=None, encoding=None):
    rng = np.random.default_rng(1)
    found = {
        name: (dims, rng.standard_normal(shape).astype("f4"), attrs)
        for name, (dims, shape, attrs) in variables.items()
    }
    rows = next(iter(found.values()))[1].shape[0]
    data = xr.Dataset(found, {"time": np.arange(rows + 0.0), **(coordinates or {})})
    data.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    with xr.open_dataset(path, engine="h5netcdf") as stored:
        return {name: stored[name].values.astype("f8") for name in found}


def read(path, names, options=CENTRES):
    campaign = open_campaign(path, names, options)
    sets = row_sets(campaign)
    rows = int(campaign.index.bounds[1])
    values = {
        c.name: sets[c.array.path].members([0], 0, rows)[0] for c in campaign.channels.values()
    }
    return campaign, values


@pytest.mark.parametrize("chunks", [None, (2, 3, 4)])
def test_outer_faces_of_wrf(tmp_path, chunks):
    at = ("time", "south_north", "west_east")
    stored = write(
        tmp_path / "a.nc",
        {
            "T": (at, (6, 5, 7), {}),
            "U": (("time", "south_north", "west_east_stag"), (6, 5, 8), {}),
            "V": (("time", "south_north_stag", "west_east"), (6, 6, 7), {}),
        },
        encoding={"U": {"chunksizes": chunks, "zlib": True}} if chunks else None,
    )
    campaign, values = read(tmp_path / "a.nc", ["T", "U", "V"])
    u, v = stored["U"], stored["V"]
    assert np.array_equal(values["T"], stored["T"].astype("f4"))
    assert values["U"] == pytest.approx(0.5 * (u[..., 1:] + u[..., :-1]), rel=1e-6)
    assert values["V"] == pytest.approx(0.5 * (v[:, 1:] + v[:, :-1]), rel=1e-6)
    assert {c.dims for c in campaign.channels.values()} == {("south_north", "west_east")}
    assert campaign.template()["U"].attrs["long_name"].endswith("at cell centres")
    part = row_sets(campaign)["U"].part(2, 4, (slice(1, 3), slice(2, 7)))
    assert part == pytest.approx(values["U"][2:4, 1:3, 2:7], rel=1e-6)


def roms(path, **more):
    at = ("time", "eta_rho", "xi_rho")
    return write(
        path,
        {
            "zeta": (at, (4, 6, 7), {}),
            "u": (("time", "eta_u", "xi_u"), (4, 6, 6), {}),
            "v": (("time", "eta_v", "xi_v"), (4, 5, 7), {}),
        },
        **more,
    )


def test_inner_faces_of_roms_leave_out_the_outer_cells_of_all_fields(tmp_path, caplog):
    stored = roms(tmp_path / "a.nc", coordinates={"xi_rho": np.arange(7) * 10.0})
    with caplog.at_level(logging.INFO):
        campaign, values = read(tmp_path / "a.nc", ["zeta", "u", "v"])
    u, v = stored["u"], stored["v"]
    assert np.array_equal(values["zeta"], stored["zeta"][:, 1:-1, 1:-1].astype("f4"))
    assert values["u"] == pytest.approx(0.5 * (u[:, 1:-1, 1:] + u[:, 1:-1, :-1]), rel=1e-6)
    assert values["v"] == pytest.approx(0.5 * (v[:, 1:, 1:-1] + v[:, :-1, 1:-1]), rel=1e-6)
    assert campaign.coordinates["xi_rho"][1].tolist() == [10, 20, 30, 40, 50]
    assert "xi_u of u is interpolated to the centres along xi_rho, cells 1 to 5" in caplog.text


@pytest.mark.parametrize("shift", [-0.5, 0.5])
@pytest.mark.parametrize("around", [True, False])
def test_as_many_faces_as_centres(tmp_path, shift, around):
    """MITgcm with COMODO: a dim of longitudes closes where they go once around."""
    step = 45.0 if around else 10.0
    points = (np.arange(8) + 0.5) * step
    coordinates = {
        "xc": ("xc", points, {"axis": "X", "units": "degrees_east"}),
        "xg": ("xg", points + shift * step, {"axis": "X", "c_grid_axis_shift": shift}),
    }
    stored = write(
        tmp_path / "a.nc",
        {"T": (("time", "y", "xc"), (4, 3, 8), {}), "U": (("time", "y", "xg"), (4, 3, 8), {})},
        coordinates,
    )
    _, values = read(tmp_path / "a.nc", ["T", "U"])
    u = stored["U"]
    centres = 0.5 * (u + np.roll(u, -1 if shift < 0 else 1, -1))
    cells = slice(None) if around else slice(0, 7) if shift < 0 else slice(1, 8)
    assert values["U"] == pytest.approx(centres[..., cells], rel=1e-6)
    assert np.array_equal(values["T"], stored["T"][..., cells].astype("f4"))


@pytest.mark.parametrize(
    ("padding", "faces", "cells", "shift"),
    [
        ("none", 8, (0, 7), 0),
        ("both", 6, (1, 6), -1),
        ("high", 7, (0, 6), 0),
        ("low", 7, (1, 7), -1),
    ],
)
def test_sgrid(tmp_path, padding, faces, cells, shift):
    at = ("time", "y", "x")
    stored = write(
        tmp_path / "a.nc",
        {"T": (at, (4, 5, 7), {}), "U": (("time", "y", "xn"), (4, 5, faces), {})},
        {
            "grid": (
                (),
                1,
                {
                    "cf_role": "grid_topology",
                    "topology_dimension": 2,
                    "face_dimensions": f"x: xn (padding: {padding})",
                },
            )
        },
    )
    _, values = read(tmp_path / "a.nc", ["T", "U"])
    u, (low, high) = stored["U"], cells
    left = u[..., low + shift : high + shift]
    right = u[..., low + shift + 1 : high + shift + 1]
    assert values["U"] == pytest.approx(0.5 * (left + right), rel=1e-6)


def test_packed_values_are_unpacked_before_their_mean(tmp_path):
    at = ("time", "south_north", "west_east_stag")
    packed = {"dtype": "int16", "scale_factor": 0.01, "add_offset": 250.0, "_FillValue": -32767}
    rng = np.random.default_rng(0)
    u = 250 + rng.random((4, 5, 8))
    u[:, 2, 3] = np.nan
    cells = (("time", "south_north", "west_east"), rng.random((4, 5, 7)).astype("f4"))
    data = xr.Dataset({"T": cells, "U": (at, u)}, {"time": np.arange(4.0)})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"U": packed})
    with xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf") as stored:
        truth = stored["U"].values.astype("f8")
    truth = 0.5 * (truth[..., 1:] + truth[..., :-1])
    _, values = read(tmp_path / "a.nc", ["T", "U"])
    assert np.isnan(values["U"]).sum() == 8  # the two cells beside a face without a value
    assert np.allclose(values["U"], truth, rtol=1e-7, equal_nan=True)


def test_means_of_integers_are_no_integers(tmp_path):
    at = np.random.default_rng(0).integers(0, 9, (3, 4, 6)).astype("i4")
    fields = {"T": (("time", "y", "west_east"), at[..., 1:].astype("f4"))}
    fields["N"] = (("time", "y", "west_east_stag"), at)
    data = xr.Dataset(fields, {"time": np.arange(3.0)})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    _, values = read(tmp_path / "a.nc", ["T", "N"])
    assert np.array_equal(values["N"], 0.5 * at[..., 1:] + 0.5 * at[..., :-1])


def test_files_with_faces_on_other_sides_are_refused(tmp_path):
    for number, shift in enumerate((-0.5, 0.5)):
        coordinates = {
            "x": ("x", np.arange(5.0), {"axis": "X"}),
            "xg": ("xg", np.arange(5.0) + shift, {"axis": "X", "c_grid_axis_shift": shift}),
        }
        write(
            tmp_path / f"{number}.nc",
            {"T": (("time", "x"), (3, 5), {}), "U": (("time", "xg"), (3, 5), {})},
            coordinates,
        )
    with pytest.raises(DataError, match=r"1\.nc: xg lies otherwise between the cells"):
        open_campaign(str(tmp_path / "*.nc"), ["T", "U"], CENTRES)


def test_what_is_not_known_is_refused(tmp_path):
    at = ("time", "y", "x")
    write(tmp_path / "a.nc", {"T": (at, (4, 5, 7), {})})
    with pytest.raises(DataError, match="no dim of the fields is known to lie between cells"):
        read(tmp_path / "a.nc", ["T"])
    wide = ("time", "south_north", "west_east_stag")
    write(
        tmp_path / "b.nc",
        {"T": (("time", "south_north", "west_east"), (4, 5, 7), {}), "U": (wide, (4, 5, 11), {})},
    )
    with pytest.raises(DataError, match="11 entries of west_east_stag beside 7 of west_east"):
        read(tmp_path / "b.nc", ["T", "U"])
    write(
        tmp_path / "c.nc",
        {
            "T": (("time", "south_north", "west_east"), (4, 5, 7), {}),
            "U": (("time", "south_north", "west_east_stag"), (4, 5, 8), {}),
            "W": (("time", "z_stag", "west_east"), (4, 5, 7), {}),
        },
    )
    with pytest.raises(
        DataError, match="z_stag lies between cells of a dim that the file does not"
    ):
        read(tmp_path / "c.nc", ["T", "U", "W"])


@pytest.mark.parametrize(
    ("name", "fields"), [("wrf", ["T2", "Q2", "U"]), ("roms", ["temp", "salt", "u"])]
)
def test_a_job_trains_on_centres_and_predicts_them(tmp_path, name, fields):
    (tmp_path / "data").mkdir()
    files = write_layout(name, tmp_path / "data")
    text = job_for_task("emulate").starter(DataToStart([str(files.path)], [str(files.path)]))
    job = yaml.safe_load(text)
    job["data"] |= {"inputs": fields, "outputs": fields, "staggered": "centres"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    changes = [f"run.root={tmp_path}", "training.steps=1", "~training.schedule"]
    assert scitoolkit.train(tmp_path / "job.yaml", changes)


@pytest.mark.parametrize(("x", "y"), [("X", "Y"), ("XC", "YC")])
def test_the_outer_faces_of_mitgcm(tmp_path, x, y):
    rng = np.random.default_rng(0)
    fields = {
        "T": (("time", y, x), rng.random((6, 6, 7))),
        "u": (("time", y, "Xp1"), rng.random((6, 6, 8))),
        "v": (("time", "Yp1", x), rng.random((6, 7, 7))),
    }
    data = xr.Dataset(fields, {x: np.arange(7) + 0.5, y: np.arange(6) + 0.5})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    found = scitoolkit.open_campaign(tmp_path / "a.nc", list(fields), staggered="centres").dataset(
        0
    )
    u, v = fields["u"][1], fields["v"][1]
    np.testing.assert_allclose(found["u"], (u[..., 1:] + u[..., :-1]) / 2)
    np.testing.assert_allclose(found["v"], (v[:, 1:] + v[:, :-1]) / 2)


@pytest.mark.parametrize("choice", [{"select": {"Z": -15.0}}, {"levels": "channels"}])
def test_an_entry_of_centres_beside_faces_is_refused(tmp_path, choice):
    rng = np.random.default_rng(0)
    fields = {
        "T": (("time", "Z", "x"), rng.random((6, 4, 7))),
        "w": (("time", "Zp1", "x"), rng.random((6, 5, 7))),
    }
    data = xr.Dataset(fields, {"Z": ("Z", np.arange(-5.0, -45, -10), {"axis": "Z"})})
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="Zp1 lies between them"):
        scitoolkit.open_campaign(tmp_path / "a.nc", list(fields), staggered="centres", **choice)
