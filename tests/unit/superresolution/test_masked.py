"""Nodes without values have no part in what is learned, and come out as missing."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from advected_waves import wave_fields
from prepared_crops import prepare

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems, load_config
from scitoolkit.core.errors import DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.io.fields import write_fields
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.masked import cut, filled

NO_PDE = {"equations": {}, "weight": 0}


def ocean(fill=np.nan, phase=0.0) -> xr.Dataset:
    """Return waves about 100 with an island of six nodes, and where water is."""
    data = wave_fields(phase=phase)
    wet = xr.DataArray(~np.isin(np.arange(data.sizes["x"]), range(8, 14)), dims="x")
    data["u"] = (data["u"] + np.float32(100)).where(wet, np.float32(fill))
    data["wet"] = wet.astype("i1")
    return data


def job(job_file, path, mask, **sections):
    data = {"path": str(path), "test": str(path), "mask": mask}
    sections = {"pde": NO_PDE, "training": {"batch_size": 4, "steps": 6}, **sections}
    return job_file(data=data, **sections)


def test_what_lies_outside_of_the_mask_changes_no_bit(job_file, tmp_path):
    found = []
    for fill in (-3.0, 1e9):
        folder = tmp_path / str(fill)
        folder.mkdir()
        write_fields(ocean(fill), folder / "ocean.nc")
        run = api.train(job(job_file, folder / "ocean.nc", "wet"))
        weights = (run.path / "model" / "weights.safetensors").read_bytes()
        found.append((weights, api.evaluate(run.path).metrics))
    assert found[0] == found[1]
    assert all(np.isfinite(v) for v in found[0][1].values() if isinstance(v, float))


def test_statistics_crops_and_points_are_of_valid_nodes(job_file, tmp_path):
    data = ocean()
    write_fields(data.drop_vars("wet"), tmp_path / "ocean.nc")
    crop = {"per_epoch": 64, "points": 50, "symmetries": {"shift": [], "mirror": {}}}
    config = load_config(
        SuperresolutionConfig, job(job_file, tmp_path / "ocean.nc", "missing", crop=crop)
    )
    prepared = prepare(config)
    valid = data["u"].values[np.isfinite(data["u"].values)].astype("f8")
    assert prepared.model.mean[0] == pytest.approx(valid.mean())
    assert prepared.model.std[0] == pytest.approx(valid.std())
    for batch in prepared.loaders["train"]:
        for key in ("low", "values"):
            assert batch[key].min() > 50  # neither NaN nor the 0 of a hidden node


def test_predictions_are_missing_where_the_coarse_file_is(job_file, tmp_path):
    write_fields(ocean().drop_vars("wet"), tmp_path / "ocean.nc")
    run = api.train(job(job_file, tmp_path / "ocean.nc", "missing"))
    every = load_config(SuperresolutionConfig, run.path / "config.yaml").crop.every
    fine = ocean().drop_vars("wet")
    coarse = fine.isel({d: slice(None, None, n) for d, n in every.items()})
    write_fields(coarse, tmp_path / "coarse.nc")
    with xr.open_dataset(api.predict(run.path, tmp_path / "coarse.nc", tmp_path / "out.nc")) as out:
        on_nodes = out["u"].sel({d: coarse[d] for d in every}, method="nearest")
        on_nodes = on_nodes.transpose(*coarse["u"].dims).values
        assert np.array_equal(np.isnan(on_nodes), np.isnan(coarse["u"].values))
        assert 0.05 < float(np.isnan(out["u"]).mean()) < 0.6
    whole = wave_fields()[["u"]].isel({d: slice(None, None, n) for d, n in every.items()})
    write_fields(whole + np.float32(100), tmp_path / "whole.nc")
    with xr.open_dataset(api.predict(run.path, tmp_path / "whole.nc", tmp_path / "all.nc")) as out:
        assert np.isfinite(out["u"]).all()


def test_a_mask_that_changes_is_refused_with_simulation_and_row(job_file, tmp_path):
    for number in range(2):
        data = ocean(phase=0.2 * number).drop_vars("wet")
        if number:
            data["u"][{"t": 3}] = 1.0
        write_fields(data, tmp_path / f"sim{number}.nc")
    config = load_config(
        SuperresolutionConfig, job(job_file, tmp_path / "sim*.nc", "missing", split=None)
    )
    with pytest.raises(DataError, match=r"(?s)sim1.*row 3.*6 cells have values"):
        prepare(config)


def test_what_needs_every_node_is_refused_by_its_key(job_file, tmp_path):
    write_fields(ocean(), tmp_path / "ocean.nc")
    equations = {"equations": {"waves": "dif(u, t) + dif(u, x)"}, "weight": 0.1}
    path = job(job_file, tmp_path / "ocean.nc", "wet", pde=equations)
    with pytest.raises(ConfigProblems, match=r"pde\.equations: needs values in all nodes"):
        load_config(SuperresolutionConfig, path)


def test_a_started_configuration_names_the_mask_and_runs(tmp_path):
    file = str(write_fields(ocean().drop_vars("wet"), tmp_path / "ocean.nc"))
    text = job_for_task("superres").starter(DataToStart([file], [file]))
    assert "mask: missing" in text
    (tmp_path / "own.yaml").write_text(text)
    assert np.isfinite(api.check(tmp_path / "own.yaml", [f"run.root={tmp_path}"])["first_loss"])


def test_a_mirrored_and_shifted_crop_takes_its_mask_along(job_file, tmp_path):
    write_fields(ocean(), tmp_path / "ocean.nc")
    symmetries = {"shift": ["x"], "mirror": {"x": ["u"]}}
    crop = {"per_epoch": 40, "points": 64, "symmetries": symmetries}
    path = job(job_file, tmp_path / "ocean.nc", "wet", crop=crop)
    config = load_config(SuperresolutionConfig, path)
    for batch in prepare(config).loaders["train"]:
        signs = np.asarray(batch["signs"])[:, None]
        assert (np.asarray(batch["values"]) * signs > 50).all()
        assert (np.asarray(batch["low"]) * signs[..., None] > 50).all()


def test_cut_and_filled_by_hand():
    valid = np.array([[True, True, False, False, False]])
    assert cut(valid, [3, 4], [2, 3]).tolist() == [[False, True, True]] * 2
    values = np.array([[1.0, 2.0, np.nan, np.nan, np.nan]])
    assert filled(values[None], valid).tolist() == [[[1.0, 2.0, 2.0, 2.0, 2.0]]]
