"""A campaign for other programs: lazy datasets and batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

import scitoolkit
from scitoolkit.io.campaign.statistics import Moments
from scitoolkit.io.fields import write_fields

ROWS, X, Y = 7, 6, 4


@pytest.fixture
def campaign(tmp_path):
    truth = []
    for i in range(4):
        v = np.random.default_rng(i).standard_normal((ROWS + i, X, Y, 2)).astype("f4")
        data = xr.Dataset(
            {"v": (("time", "x", "y", "c"), v, {"units": "m/s"})},
            coords={"time": np.arange(ROWS + i) / 2, "x": np.arange(X)},
        )
        write_fields(data, tmp_path / f"s{i}.nc")
        truth.append(v)
    return scitoolkit.open_campaign(tmp_path, ["v"]), truth


def test_the_tree_is_lazy_and_has_every_value(campaign):
    opened, truth = campaign
    tree = opened.tree()
    assert opened.rows["v"].counters()[0].nbytes == 0
    assert list(tree.children) == ["s0", "s1", "s2", "s3"]
    for node, values in zip(tree.children.values(), truth, strict=True):
        assert node["v"].dims == ("time", "x", "y", "component")
        assert node["v"].attrs["units"] == "m/s"
        assert np.array_equal(node["v"].values, values)
        assert np.array_equal(node["v"].isel(time=2, x=[3, 1]).values, values[2][[3, 1]])
        assert node["time"].values.tolist() == (np.arange(len(values)) / 2).tolist()
    row = opened.rows["v"].row_nbytes
    before = opened.rows["v"].counters()[0].nbytes
    tree["s3"]["v"].sel(time=1.5).load()
    assert opened.rows["v"].counters()[0].nbytes - before == row


def test_each_simulation_has_its_own_coordinates(tmp_path):
    for i in range(3):
        data = xr.Dataset(
            {"v": (("time", "x"), np.zeros((ROWS, X), "f4"))},
            coords={"x": (i + 1.0) * np.arange(X)},
        )
        write_fields(data, tmp_path / f"s{i}.nc")
    opened = scitoolkit.open_campaign(tmp_path)
    for i, node in enumerate(opened.tree().children.values()):
        assert node["x"].values.tolist() == ((i + 1) * np.arange(X)).tolist()
    assert [number for number, _ in opened.found.other_grids()] == [1, 2]


@pytest.mark.parametrize("channels", ["first", "last"])
def test_batches_are_windows_of_one_simulation(campaign, channels):
    opened, truth = campaign
    parts = opened.split(train=2, validation=1, test=1)
    loader = opened.loader(
        3,
        history=3,
        horizon=2,
        part=parts["train"],
        channels=channels,
        inputs=["v"],
        outputs=["v_1"],
        shuffle=False,
    )
    found = {k: np.concatenate([b[k].numpy() for b in loader]) for k in ("x", "y")}
    expected = [v[i : i + 5] for v in truth[:2] for i in range(len(v) - 4)]
    x, y = np.stack([w[:3] for w in expected]), np.stack([w[3:, ..., 1:] for w in expected])
    if channels == "first":
        x, y = np.moveaxis(x, -1, 2), np.moveaxis(y, -1, 2)
    assert np.array_equal(found["x"], x)
    assert np.array_equal(found["y"], y)


def test_a_dataloader_of_torch_takes_the_windows(campaign):
    opened, truth = campaign
    loader = torch.utils.data.DataLoader(opened.windows(2, stride=2), batch_size=4)
    first = next(iter(loader))
    assert first["x"].shape == (4, 2, 2, X, Y)
    assert np.array_equal(first["x"][0, 1, 0].numpy(), truth[0][2, ..., 0])
    assert np.array_equal(first["y"][0, 0, 0].numpy(), truth[0][4, ..., 0])


@pytest.mark.parametrize("mask", ["missing", "wet"])
def test_windows_are_zero_outside_of_a_mask(tmp_path, mask):
    generator = np.random.default_rng(0)
    wet = generator.random((X, Y)) > 0.4
    values = np.where(wet[..., None], generator.normal(size=(5, X, Y, 2)), np.nan).astype("f4")
    data = {"v": (("time", "x", "y", "c"), values), "wet": (("x", "y"), wet.astype("i1"))}
    xr.Dataset(data).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    opened = scitoolkit.open_campaign(tmp_path / "a.nc", ["v"], mask=mask)
    assert np.array_equal(opened.valid, wet)
    batch = next(iter(opened.loader(4, shuffle=False)))
    assert np.array_equal(batch["x"][:, 0].numpy(), np.nan_to_num(np.moveaxis(values[:4], -1, 1)))
    part = opened.channels(0)["v_1"].isel(time=slice(1, 4), x=[2, 0], y=1)
    assert np.array_equal(part.values, values[1:4, [2, 0], 1, 1], equal_nan=True)


def test_moments_are_those_of_all_values_in_any_shares():
    rng = np.random.default_rng(0)
    values = 300 + 5 * rng.normal(size=(40, 6))
    values[:7] -= 20
    whole, first, second = Moments(), Moments(), Moments()
    whole.add(values, True)
    for part in np.split(values[:25], [3, 10]):
        first.add(part, True)
    second.add(values[25:], True)
    for moments in (whole, first.merge(second)):
        mean, variance, square = moments.parts[:, 0]
        wanted = [values.mean(), values.var(), (values**2).mean()]
        np.testing.assert_allclose([mean, variance, square], wanted, rtol=1e-12)
