"""The page "Use your own data" works on a file of a user, whatever its names, sizes and kinds."""

from __future__ import annotations

import glob
import re
import shlex

import numpy as np
import pytest
import xarray as xr
from pages import page, shortened

from scitoolkit.cli.main import run_cli

QUICK = ["training.epochs=1", "ensemble=1", "harmonics=[2]", "pod.rank=2"]
FEWER = {
    "run forecast.yaml\n": f"run forecast.yaml {' '.join(QUICK)}\n",
    "training.steps=300": "training.steps=2 training.batch_size=4",
    'run("forecast.yaml")': f'run("forecast.yaml", {QUICK})',
}


@pytest.fixture(
    params=[
        pytest.param("months, degrees, float32", marks=pytest.mark.slow),
        "hours, metres, float64",
    ]
)
def field(request, tmp_path, monkeypatch):
    """Write `my.nc`, a wave with noise, and enter its folder."""
    monkeypatch.chdir(tmp_path)
    monthly = request.param.startswith("months")
    steps = np.arange(72 if monthly else 90)
    y, x = np.arange(8.0), np.arange(12.0)
    wave = np.sin(2 * np.pi * (steps[:, None, None] / 12 + x / 12)) * np.cos(y / 4)[:, None]
    values = wave + 0.1 * np.random.default_rng(3).normal(size=wave.shape)
    if monthly:
        time = np.datetime64("2001-01", "M") + steps
        coordinates = {
            "time": time.astype("datetime64[ns]"),
            "lat": ("lat", 20 + 5 * y, {"units": "degrees_north"}),
            "lon": ("lon", 30 * x, {"units": "degrees_east"}),
        }
        kind, name, units = "f4", "tas", "K"
    else:
        coordinates = {
            "t": ("t", 0.5 * steps, {"units": "h"}),
            "ny": ("ny", y, {"units": "m"}),
            "nx": ("nx", x, {"units": "m"}),
        }
        kind, name, units = "f8", "h", "m"
    data = xr.DataArray(
        values.astype(kind), dims=list(coordinates), coords=coordinates, attrs={"units": units}
    )
    data.to_dataset(name=name).to_netcdf("my.nc", engine="h5netcdf")
    return data


def test_the_page_leads_from_a_file_to_its_results(field, capsys):
    text = shortened(page("how-to/your-own-data"), FEWER)
    for language, block in re.findall(r"^```(python|bash)\n(.*?)^```", text, re.M | re.S):
        if language == "python":
            exec(compile(block, "page", "exec"), {})
            continue
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            program, *arguments = [name for word in words for name in glob.glob(word) or [word]]
            assert program == "scitoolkit"
            code = run_cli(arguments)
            assert code == 0, f"{line}: {capsys.readouterr().err}"
    assert "times smaller" in capsys.readouterr().out
    with xr.open_dataset("plain.nc") as plain, xr.open_dataset("steps.nc") as steps:
        (name,) = plain.data_vars
        bound = 1e-3 * float(field.max() - field.min())
        assert abs(plain[name] - field).max() <= bound * (1 + 1e-6)
        assert name in steps
