"""The workflow from configuration to report, on a small file."""

from __future__ import annotations

import sys

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit import api
from scitoolkit.core.content import content_root


def test_the_workflow_verifies_and_compares(tmp_path):
    config = content_root("workflows") / "compress_snapshot" / "train.yaml"
    nyx = content_root("datasets") / "nyx_small" / "nyx_z255_32.h5"
    settings = [f"data.path={nyx}", "data.variables=[native_fields/velocity_x]"]
    run = api.run(config, [f"run.root={tmp_path}", *settings])
    results = api.evaluate(run.path)
    assert results.metrics["broken"] == 0
    assert results.metrics["largest_error_over_bound"] <= 1
    assert results.metrics["gain_db_min"] > 0.8
    assert [(f.kind, f.title.partition(": ")[2]) for f in results.figures] == [
        ("maps", "middle slice"),
        ("lines", ""),
        ("maps", "where the errors are"),
        ("lines", "power spectrum"),
        ("points", "rate and distortion"),
    ]
    original, decoded, error = results.figures[3].series
    assert original.y[0] == pytest.approx(decoded.y[0], rel=0.1)
    assert error.y[0] < 0.1 * original.y[0]
    ours, *rivals, this = results.figures[4].series
    assert (ours.label, this.label) == ("ours", "this file")
    assert len(rivals) == 3
    assert sorted(ours.x) == ours.x
    assert sorted(ours.y) == ours.y
    assert (run.path / "report" / "index.html").is_file()
    panels = results.figures[0].panels
    best = results.verdict.rival_name
    assert panels[-1].label == f"{best} at equal bytes: error / bound"
    fields = xr.open_dataset(run.path / "results.nc").load()
    ours, beside = (float((fields[panel.variable] ** 2).mean()) for panel in panels[-2:])
    assert ours < beside  # the panel shows what the verdict tells


def test_the_slice_has_the_names_and_the_unit_of_the_file(tmp_path):
    field = np.sin(np.linspace(0, 20, 4096, dtype="f4")).reshape(16, 16, 16)
    data = xr.Dataset({"t": (("time", "height", "x"), field, {"units": "K"})})
    data.to_netcdf(tmp_path / "in.nc", engine="h5netcdf")
    config = content_root("workflows") / "compress_snapshot" / "train.yaml"
    run = api.run(config, [f"run.root={tmp_path}", f"data.path={tmp_path / 'in.nc'}"])
    (maps, *_) = api.evaluate(run.path).figures
    assert maps.panels[0].unit == "K"
    shown = xr.open_dataset(run.path / "results.nc")
    assert shown["t: original"].dims == ("height", "x")


def test_predict_compresses_another_file(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["v"] = np.linspace(0, 1, 4096, dtype="f4").reshape(16, 16, 16)
    config = content_root("workflows") / "compress_snapshot" / "train.yaml"
    run = api.train(config, [f"run.root={tmp_path}", f"data.path={tmp_path / 'in.h5'}"])
    api.predict(run.path, tmp_path / "in.h5", tmp_path / "out.h5")
    assert (tmp_path / "out.h5").stat().st_size < (tmp_path / "in.h5").stat().st_size
    assert api.check(config)["variables"]


def test_the_report_names_the_codecs_that_were_not_run(tmp_path, monkeypatch):
    np.save(tmp_path / "in.npy", np.sin(np.linspace(0, 20, 4096, dtype="f4")).reshape(16, 16, 16))
    config = content_root("workflows") / "compress_snapshot" / "train.yaml"
    settings = [f"run.root={tmp_path}", f"data.path={tmp_path / 'in.npy'}", "codec=dyadic"]
    run = api.train(config, settings)
    monkeypatch.setitem(sys.modules, "pysz", None)
    monkeypatch.setitem(sys.modules, "zfpy", None)
    table, quality, places = api.evaluate(run.path).tables
    assert places.title == "Where the errors are largest"
    assert quality.rows[0][1] > 0.99  # DSSIM
    assert "Not run: sz3 (pysz is not installed), zfp (zfpy is not installed)." in table.note
    assert "SPERR (dB)" in table.columns
    assert "SZ3 (dB)" not in table.columns
    for package in ("hdf5plugin", "zfpy"):
        monkeypatch.setitem(sys.modules, package, None)
    results = api.evaluate(run.path)
    assert "No other codec is installed" in results.tables[0].note
    assert results.metrics["gain_db_min"] is None
