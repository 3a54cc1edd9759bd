from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from scitoolkit import api
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import ConfigError

CPP = content_root("workflows") / "field_surrogate" / "cpp" / "call_emulator.cpp"


def test_an_onnx_file_returns_what_the_emulator_does(trained, tmp_path):
    onnx = pytest.importorskip("onnx")
    found = api.export(trained, tmp_path / "model.onnx")
    assert found["largest_difference"] < 1e-4
    assert found["inputs"] == [
        {"name": "u", "dims": ["sample", "x"], "shape": [1, 32], "units": "m/s"}
    ]
    stored = {p.key: p.value for p in onnx.load(found["path"]).metadata_props}
    assert json.loads(stored["scitoolkit"])["step"] == pytest.approx(0.5)


def test_unknown_kinds_are_refused(trained, tmp_path):
    with pytest.raises(ConfigError, match=r"\.pt2, \.onnx"):
        api.export(trained, tmp_path / "model.h5")
    with pytest.raises(ConfigError, match=r"\.c, \.so"):
        api.export("sst_forecast", tmp_path / "model.pt2")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_cpp_calls_the_compiled_package(tmp_path, job):
    import h5py

    path = tmp_path / "flow.h5"
    values = np.random.default_rng(0).standard_normal((6, 8, 6)).astype("f4")
    with h5py.File(path, "w") as file:
        file["u"] = values
    config = job(
        {
            "path": str(path),
            "inputs": ["u"],
            "outputs": ["u"],
            "sample_dim": "t",
            "dims": ["t", "x", "z"],
        },
        boundary={"x": "circular"},
        transport={"x": 3},
        split={"train": 4, "validation": 0, "test": 2},
        training={"steps": 3},
    )
    run = api.train(config).path
    package = tmp_path / "model.pt2"
    assert api.export(run, package)["largest_difference"] < 1e-4
    torch_folder = Path(torch.__file__).parent
    program = tmp_path / "call_emulator"
    include, lib = torch_folder / "include", torch_folder / "lib"
    subprocess.run(
        [
            "g++",
            "-O0",
            "-std=c++20",
            f"-I{include}",
            f"-I{include}/torch/csrc/api/include",
            str(CPP),
            "-o",
            str(program),
            f"-L{lib}",
            f"-Wl,-rpath,{lib}",
            "-ltorch",
            "-ltorch_cpu",
            "-lc10",
        ],
        check=True,
        timeout=600,
    )
    state, result = tmp_path / "state.bin", tmp_path / "result.bin"
    values[0].tofile(state)
    subprocess.run([program, package, "1", "8", "6", "3", state, result], check=True, timeout=120)
    from scitoolkit.core.config import load_config
    from scitoolkit.emulation import surrogate
    from scitoolkit.emulation.config import EmulationConfig
    from scitoolkit.emulation.rollout import rollout

    loaded = load_config(EmulationConfig, run / "config.yaml")
    *_, last = rollout(surrogate.load(run / "model", loaded), {"u": values[0]}, 3)
    found = np.fromfile(result, np.float32).reshape(8, 6)
    assert np.allclose(found, last["u"], atol=1e-5)
