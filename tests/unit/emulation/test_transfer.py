"""An emulator on another box or resolution than its training's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.errors import DataError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.ensemble import build_any
from scitoolkit.emulation.transfer import on_grid
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.io.fields import write_fields


def layout(cells: int, length: float, walls: int = 8) -> Layout:
    fields = tuple(Variable(n, ("x", "z"), (cells, walls), "", True) for n in "uv")
    x = (length / cells * np.arange(cells)).tolist()
    return Layout(fields, fields, {"x": cells, "z": walls}, {"x": x, "z": list(range(walls))}, "t")


def config(model: dict, **sections) -> EmulationConfig:
    data = {"path": "none.nc", "inputs": ["u", "v"], "outputs": ["u", "v"]}
    sections = {"boundary": {"x": "circular"}, **sections}
    return EmulationConfig.model_validate({"data": data, "model": model, **sections})


CONVOLUTIONS = [
    {"name": "unet", "widths": [8, 12], "patch": 2},
    {"name": "resnet", "width": 8, "blocks": 2},
    {"name": "convnext_unet", "widths": [8, 12]},
]
SPECTRAL = [
    {"name": "fno", "width": 8, "modes": [4]},
    {"name": "factorised_fno", "width": 8, "modes": [4]},
]


def stirred(settings: EmulationConfig, on: Layout):
    torch.manual_seed(0)
    emulator = build_any(settings, on).eval()
    for parameter in emulator.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    emulator.advance.out_scale.fill_(0.5)
    return emulator


@pytest.mark.parametrize("model", CONVOLUTIONS, ids=lambda m: m["name"])
def test_a_box_of_two_periods_is_two_boxes_of_one(model):
    guards = [
        {"name": "spectral_filter", "dims": ["x"]},
        {"name": "fixed_mean", "values": {"u": 0.0}},
    ]
    settings = config(model, coordinates=["z"], transport={"x": 3}, guards=guards)
    emulator = stirred(settings, layout(16, 2.0))
    longer = on_grid(emulator, settings, layout(32, 4.0))
    inputs = [torch.randn(2, 16, 8) for _ in "uv"]
    with torch.no_grad():
        once, twice = emulator(*inputs), longer(*(torch.cat([x, x], 1) for x in inputs))
    for a, b in zip(once, twice, strict=True):
        torch.testing.assert_close(torch.cat([a, a], 1), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("model", SPECTRAL, ids=lambda m: m["name"])
def test_spectral_layers_give_the_same_field_on_finer_cells(model):
    settings = config(model)
    emulator = stirred(settings, layout(16, 2.0))
    finer = on_grid(emulator, settings, layout(32, 2.0))
    wave = lambda n: torch.sin(2 * torch.pi * torch.arange(n) / n)[None, :, None].expand(1, n, 8)  # noqa: E731
    with torch.no_grad():
        coarse, fine = emulator(wave(16), wave(16)), finer(wave(32), wave(32))
    for a, b in zip(coarse, fine, strict=True):
        assert float((a - b[:, ::2]).abs().max() / a.abs().max()) < 0.02


@pytest.mark.parametrize(
    ("model", "sections", "found", "said"),
    [
        (CONVOLUTIONS[0], {}, layout(32, 2.0), "unet: its convolutions .* 0.125, not 0.0625 apart"),
        (CONVOLUTIONS[0], {}, layout(18, 2.25), "unet: multiples of 4 cells"),
        (CONVOLUTIONS[0], {"coordinates": ["z"]}, layout(16, 2.0, 12), "coordinates: .* along z"),
        (SPECTRAL[0], {}, layout(32, 4.0), "fno: its modes are those of a box of length 2, not 4"),
        (SPECTRAL[0], {"transport": {"x": 2}}, layout(32, 2.0), "transport: .* in cells"),
        ({"name": "elliptic", "modes": [4]}, {}, layout(32, 4.0), "elliptic: its modes"),
        ({"name": "elliptic", "modes": [4]}, {}, layout(32, 2.0), "elliptic: its convolutions"),
    ],
)
def test_layers_that_belong_to_their_grid_are_named(model, sections, found, said):
    settings = config(model, **sections)
    with pytest.raises(DataError, match=said):
        on_grid(stirred(settings, layout(16, 2.0)), settings, found, "file")


def test_a_trained_emulator_is_evaluated_and_rolled_out_in_a_longer_box(trained, wave, tmp_path):
    with xr.open_dataset(wave(12, seed=1, name="test.nc")) as file:
        own = file.load()
    twice = xr.concat([own, own.assign_coords(x=own.x + 1)], "x", data_vars="all")
    path = write_fields(twice, tmp_path / "twice.nc")
    found = api.evaluate(trained, path)
    assert found.metrics["rmse_u"] == pytest.approx(
        api.evaluate(trained).metrics["rmse_u"], rel=1e-4
    )
    api.predict(trained, path, tmp_path / "long.nc")
    with xr.open_dataset(tmp_path / "long.nc") as made:
        assert made.sizes["x"] == 64


@pytest.mark.parametrize("name", ["fno", "factorised_fno"])
@pytest.mark.parametrize(
    ("modes", "refused"),
    [([16], "were never trained"), ([8], ""), ([9, 4], "1 were never"), ([8, 12], "")],
)
def test_modes_that_the_training_grid_does_not_hold_are_refused_on_a_finer_one(
    name, modes, refused
):
    settings = config({"name": name, "width": 8, "layers": 1, "modes": modes})
    emulator = stirred(settings, layout(16, 2.0))  # circular along x: 8 modes of 16 cells
    finer = layout(32, 2.0)
    if not refused:
        on_grid(emulator, settings, finer)
        return
    with pytest.raises(DataError, match=rf"modes along x.*hold 8.*{refused}.*modes: \[8\]"):
        on_grid(emulator, settings, finer)
    on_grid(emulator, settings, layout(16, 2.0))
    assert on_grid(emulator, settings, layout(12, 2.0)) is not None  # fewer cells need no new mode
