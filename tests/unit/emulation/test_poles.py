"""A latitude from pole to pole is padded by the cells half a turn away."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
from pydantic import ValidationError
from typer.testing import CliRunner

from scitoolkit.cli.main import app
from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import build
from scitoolkit.emulation.models.config import ConvNeXtUNetConfig, ResNetConfig, UNetConfig
from scitoolkit.emulation.models.layers import Conv, pad
from scitoolkit.emulation.models.padding import PoleDim
from scitoolkit.emulation.models.slabwise import cut_dim
from scitoolkit.emulation.poles import paddings_of
from scitoolkit.emulation.stages import EmulationStages

CENTRES = np.linspace(-87.5, 87.5, 36)
POINTS = np.linspace(-90, 90, 19)


def on_sphere(latitude, longitude):
    """Return a smooth function of the position on the sphere, for latitudes beyond 90 too."""
    phi, lam = np.radians(latitude)[:, None], np.radians(longitude)
    x, y, z = np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi) + 0 * lam
    return torch.from_numpy(x + 0.5 * y - 0.3 * z + x * y * z)


@pytest.mark.parametrize("latitude", [CENTRES, POINTS], ids=["centres", "points"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_padding_continues_a_function_on_the_sphere(latitude, turned, width, transposed):
    longitude = np.arange(0, 360, 15.0)
    step = latitude[1] - latitude[0]
    beyond = np.concatenate(
        [
            latitude[0] - step * np.arange(width, 0, -1),
            latitude,
            latitude[-1] + step * np.arange(1, width + 1),
        ]
    )
    inside, expected = on_sphere(latitude, longitude), on_sphere(beyond, longitude)
    if turned:
        inside, expected = inside.flip(0), expected.flip(0)
    ends = (abs(latitude[0]) == 90, abs(latitude[-1]) == 90)
    dim, around = (3, 2) if transposed else (2, 3)
    if transposed:
        inside, expected = inside.T, expected.T
    found = pad(inside[None, None], dim, width, PoleDim(around, len(latitude), ends))
    assert torch.allclose(found[0, 0], expected, atol=1e-12)


def test_an_odd_number_of_longitudes_is_interpolated():
    longitude = np.arange(15) * 24.0
    inside = on_sphere(CENTRES, longitude)
    found = pad(inside[None, None], 2, 1, PoleDim(3, 36))[0, 0]
    expected = on_sphere(np.array([-92.5, 92.5]), longitude)
    assert torch.allclose(found[[0, -1]], expected, atol=0.05)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_is_equal_at_all_longitudes(transposed):
    torch.manual_seed(0)
    around, dim = (2, 3) if transposed else (3, 2)
    paddings = ["circular", PoleDim(2, 9)] if transposed else [PoleDim(3, 9), "circular"]
    conv = Conv(1, 2, paddings, 5).double()
    shape = (1, 1, 12, 9) if transposed else (1, 1, 9, 12)
    x = torch.randn(shape, dtype=torch.float64)
    out = conv(x)
    assert out.shape[2:] == x.shape[2:]
    assert torch.allclose(conv(x.roll(5, around)), out.roll(5, around), atol=1e-12)
    # The stencil at the first latitude sees the cells opposite.
    moved = x.clone()
    moved.select(dim, 0).select(-1, 6).add_(1.0)
    changed = (conv(moved) - out).abs().select(dim, 0)[0].sum(0) > 1e-9
    assert changed[0]


def write(path, latitude=CENTRES, longitude=None, dims=("time", "lat", "lon"), units="degrees"):
    longitude = np.arange(0, 360, 30.0) if longitude is None else longitude
    factor = np.pi / 180 if units == "radian" else 1
    lat = {"units": "radian" if factor != 1 else "degrees_north", "standard_name": "latitude"}
    sizes = {"time": 12, "lat": len(latitude), "lon": len(longitude)}
    values = np.random.default_rng(0).normal(size=[sizes[d] for d in dims])
    xr.Dataset(
        {"t": (dims, values.astype("f4"))},
        coords={
            "time": np.arange(12.0),
            "lat": ("lat", factor * latitude, lat),
            "lon": ("lon", factor * longitude),
        },
    ).to_netcdf(path, engine="h5netcdf")
    return path


def job(path, **more) -> EmulationConfig:
    data = {"path": path, "inputs": ["t"], "outputs": ["t"], **more.pop("data", {})}
    more = {"boundary": {"lat": "pole", "lon": "circular"}, **more}
    model = more.pop("model", {"name": "unet", "widths": [4, 4]})
    return EmulationConfig.model_validate({"data": data, "model": model, **more})


def paddings(config):
    data = EmulationStages().open(config, None)
    data.close()
    return paddings_of(config, data.layout)


@pytest.mark.parametrize("units", ["degrees", "radian"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("latitude", "points"),
    [
        (CENTRES, (False, False)),
        (POINTS, (True, True)),
        (np.degrees(np.arcsin(np.polynomial.legendre.leggauss(12)[0])), (False, False)),
        (np.linspace(-85, 90, 36), (False, True)),
    ],
)
def test_poles_are_known_from_latitudes(tmp_path, units, turned, latitude, points):
    step = -1 if turned else 1
    path = write(tmp_path / "a.nc", latitude[::step], units=units)
    found, around = paddings(job(path))
    assert found == PoleDim(3, len(latitude), points[::step])
    assert around == "circular"


@pytest.mark.parametrize("name", ["unet", "resnet", "convnext_unet"])
@pytest.mark.parametrize("dims", [("time", "lat", "lon"), ("time", "lon", "lat")])
def test_networks_treat_all_longitudes_alike(tmp_path, name, dims):
    config = job(
        write(tmp_path / "a.nc", longitude=np.arange(0, 360, 11.25), dims=dims),
        model={"name": name},
    )
    data = EmulationStages().open(config, None)
    emulator = build(config, data.layout).eval().double()
    for parameter in emulator.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    x = torch.randn(1, *data.layout.grid.values(), dtype=torch.float64)
    axis = 1 + list(data.layout.grid).index("lon")
    with torch.no_grad():
        # A multiple of the cells of the coarsest level.
        (out,), (shifted,) = emulator(x.clone()), emulator(x.roll(-8, axis))
    data.close()
    assert torch.allclose(shifted, out.roll(-8, axis), atol=1e-9 * float(out.abs().max()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latitude": np.linspace(20, 60, 12)}, "do not reach both poles"),
        ({"latitude": np.linspace(2.5, 87.5, 18)}, "do not reach both poles"),
        ({"longitude": np.arange(0, 180, 15.0)}, "not of a whole turn"),
        ({"boundary": {"lat": "pole"}}, "0 circular dims"),
        ({"boundary": {"lon": "pole", "lat": "circular"}}, "no latitude by CF"),
        ({"data": {"area_weights": False}}, "no latitude by CF"),
        ({"model": {"name": "fno"}}, "cannot pad a dim beyond a pole"),
        ({"model": {"name": "field_transformer"}}, "cannot pad a dim beyond a pole"),
        ({"transport": {"lon": 3}}, "change their direction"),
    ],
)
def test_what_cannot_cross_a_pole_is_refused(tmp_path, changes, message):
    grid = {k: changes.pop(k) for k in ("latitude", "longitude") if k in changes}
    config = job(write(tmp_path / "a.nc", **grid), **changes)
    with pytest.raises(ConfigError, match=message):
        paddings(config)


def test_an_unknown_padding_is_refused():
    with pytest.raises(ValidationError):
        job("a.nc", boundary={"lat": "poles"})
    with pytest.raises(ValueError, match="PoleDim"):
        pad(torch.zeros(1, 1, 4, 4), 2, 1, "pole")


def test_large_fields_are_not_cut_along_the_sphere():
    size = [4000, 4000]
    assert cut_dim(size, ["edge", "circular"]) is not None
    assert cut_dim(size, [PoleDim(3, 4000), "circular"]) is None
    assert cut_dim([4000, *size], ["edge", PoleDim(4, 4000), "circular"]) == 2


@pytest.mark.parametrize("config", [UNetConfig, ResNetConfig, ConvNeXtUNetConfig])
def test_the_networks_that_say_so_cross_poles(config):
    torch.manual_seed(0)
    network = config().build(1, 1, [PoleDim(3, 16), "circular"]).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    x = torch.randn(1, 1, 16, 16)
    with torch.no_grad():
        moved = x.clone()
        moved[0, 0, 0, 8] += 1
        change = (network(moved) - network(x)).abs()[0, 0, 0]
        walled = config().build(1, 1, ["edge", "circular"]).eval()
        walled.load_state_dict(network.state_dict())
        assert not torch.equal(walled(x), network(x))
    assert change[0] > 0  # half a turn away, across the pole


@pytest.mark.parametrize(
    ("latitude", "longitude", "boundary"),
    [
        (CENTRES, None, "{lat: pole, lon: circular}"),
        (POINTS, np.arange(-180, 180, 10.0), "{lat: pole, lon: circular}"),
        (np.linspace(20, 60, 12), None, "{lon: circular}"),
        (CENTRES, np.arange(0, 100, 10.0), None),
        (CENTRES, np.arange(0, 361, 10.0), None),  # both ends of the period are stored
    ],
)
def test_init_writes_the_boundaries_of_the_globe(tmp_path, latitude, longitude, boundary):
    write(tmp_path / "a.nc", latitude, longitude)
    done = CliRunner().invoke(app, ["init", "emulate", str(tmp_path / "a.nc")])
    assert done.exit_code == 0, done.output
    stated = [line for line in done.output.splitlines() if line.startswith("boundary:")]
    assert [line.partition("#")[0].strip() for line in stated] == (
        [] if boundary is None else [f"boundary: {boundary}"]
    )


def test_init_offers_no_period_along_a_latitude_or_a_part_of_a_longitude(tmp_path):
    write(tmp_path / "a.nc", np.linspace(0.0, 40.0, 8), np.linspace(280.0, 340.0, 12))
    done = CliRunner().invoke(app, ["init", "emulate", str(tmp_path / "a.nc")])
    assert done.exit_code == 0, done.output
    assert "boundary" not in done.output
