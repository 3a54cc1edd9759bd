"""What a user may get wrong, and what is said about it."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from advected_waves import wave_fields

from scitoolkit import api
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError, ScitoolkitError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.io.fields import write_fields
from scitoolkit.superresolution import SuperresolutionSurrogate, stream
from scitoolkit.superresolution.config import CropConfig
from scitoolkit.superresolution.crops import layout_of
from scitoolkit.superresolution.grid import RectilinearGrid
from scitoolkit.superresolution.predict import Derived


def low(**_):
    return wave_fields().isel(t=slice(None, None, 4), x=slice(0, None, 4))


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"pde": {"equations": {"e": "dif(u,t) + c*dif(u,x)"}}}, "unknown name 'c'"),
        ({"pde": {"equations": {"e": "dif(u,y)"}}}, "cannot differentiate with respect to 'y'"),
        ({"data": {"dims": ["t", "y"]}}, "do not match"),
        ({"data": {"periodic": {"x": 3.0}}}, "do not fill a period"),
        ({"data": {"periodic": {"y": 3.0}}}, "not a dim"),
        ({"data": {"fields": ["v"]}}, "'v' not found"),
        ({"crop": {"size": {"t": 90}}}, "crops have 90 nodes along t, but the file has 17"),
        ({"crop": {"every": {"t": 3, "x": 4}}}, "does not end at the last"),
        ({"crop": {"every": {"t": 4, "x": 5}}}, "does not fill the period"),
        ({"crop": {"symmetries": {"shift": ["t"]}}}, "t is not periodic"),
        ({"crop": {"symmetries": {"mirror": {"x": ["v"]}}}}, "'v' is not a field"),
        (
            {
                "pde": {"equations": {"e": "dif(u,t) - dif(u,x,x)"}, "weight": 0.1},
                "model": {"decoder": {"name": "mlp", "activation": "relu"}},
            },
            "no derivative of order 2",
        ),
        ({"pde": {"equations": {}, "weight": 0.1}}, "weight needs equations"),
        ({"pde": {"equations": {}, "weight": 0.0, "combine": False}}, "not used with no equations"),
        (
            {"pde": {"equations": {}, "weight": 0.0, "constants": {"R": 1.0}}},
            "not used without pde.equations",
        ),
        ({"pde": {"weight": 0.0, "points": 8, "warmup_steps": 2}}, "not used with weight: 0"),
        (
            {"pde": {"equations": {"e": "dif(u,t)"}, "constants": {"c": "speeed*2"}}},
            "did you mean speed",
        ),
        ({"model": {"encoder": {"name": "resunet", "blocks": 2}}}, "resunet takes no stages"),
    ],
)
def test_jobs_that_cannot_be(job_file, sections, said):
    with pytest.raises(ScitoolkitError, match=said):
        api.check(job_file(**sections))


def test_files_that_cannot_be_learned_from(job_file, tmp_path):
    holes = wave_fields()
    holes["u"][3, 2] = np.nan
    places = wave_fields()["x"].values.copy()
    places[5] = 1.5
    for data, said in (
        (holes, r"NaN or Inf at index[\s\S]*u"),
        (wave_fields().assign_coords(x=places), "not monotonic"),
    ):
        path = write_fields(data, tmp_path / "bad.nc")
        with pytest.raises(DataError, match=said):
            api.check(job_file(data={"path": str(path)}))


def test_queries_outside_the_domain(trained, tmp_path):
    coarse = SuperresolutionSurrogate.load(trained / "model").coarse(low())
    with pytest.raises(DataError, match=r"t=1.5[\s\S]*extrapolate"):
        coarse.query(np.array([[1.5, 0.0]]))
    assert np.isfinite(coarse.query(np.array([[1.05, 0.0]]), extrapolate=True)).all()
    assert np.isfinite(coarse.query(np.array([[0.5, -77.0]]))).all()  # x is periodic
    with pytest.raises(DataError, match="NaN in point 1"):
        coarse.query(np.array([[0.5, 0.0], [np.nan, 0.0]]))
    with pytest.raises(DataError, match="points of shape"):
        coarse.query(np.zeros((3, 3)))
    with pytest.raises(DataError, match="strictly ascending"):
        stream(coarse, {"t": [0.5, 0.2]}, tmp_path / "a.nc")
    with pytest.raises(DataError, match="'y' is not a dim"):
        stream(coarse, {"y": [0.5]}, tmp_path / "a.nc")
    with pytest.raises(ConfigError, match="cannot tell a format"):
        stream(coarse, {"t": [0.5]}, tmp_path / "a.txt")
    with pytest.raises(ConfigError, match="has the name of a field"):
        Derived(coarse, {"u": "dif(u,x)"})
    assert not list(tmp_path.iterdir())


def test_inputs_that_the_model_does_not_know(trained):
    surrogate = SuperresolutionSurrogate.load(trained / "model")
    with pytest.raises(DataError, match="'u' not found"):
        surrogate.coarse(low().rename(u="v"))
    with pytest.raises(DataError, match="nodes along t"):
        surrogate.coarse(low().isel(t=[0]))


def test_damaged_weights(trained, tmp_path):
    surrogate = SuperresolutionSurrogate.load(trained / "model")
    surrogate.save(tmp_path, "float16")
    again = SuperresolutionSurrogate.load(tmp_path)
    for a, b in zip(surrogate.model.parameters(), again.model.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-3, atol=1e-4)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:200])
    with pytest.raises(CheckpointError, match="cannot be read"):
        SuperresolutionSurrogate.load(tmp_path)
    weights.unlink()
    with pytest.raises(CheckpointError, match="no weights in this folder"):
        SuperresolutionSurrogate.load(tmp_path)


def test_a_model_with_a_spectrum_is_not_exported_without_it(tmp_path):
    source = content_root("surrogates") / "rayleigh_benard_mfn"
    model = shutil.copytree(source, tmp_path / "model")
    with (model / "config.yaml").open("a", encoding="utf-8") as config:
        config.write("spectrum: apart.h5\n")
    with pytest.raises(ConfigError, match="spectral correction"):
        job_for_task("superres").traced(model)


def test_a_dim_of_a_single_node_is_refused():
    dims = ("t", "z", "x")
    grid = RectilinearGrid(
        dims, (np.arange(9.0), np.zeros(1), np.arange(9.0)), (None,) * 3, ("1",) * 3
    )
    with pytest.raises(ConfigError, match="a single node along z"):
        layout_of(grid, CropConfig(every={"t": 4, "x": 4}))
