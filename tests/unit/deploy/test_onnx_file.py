"""ONNX files of functions of arrays: what onnxruntime computes, or refused by name."""

from __future__ import annotations

import json
import logging

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.onnx_file import OnnxOptions, export_onnx

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


class Column(nn.Module):
    """Two results of a state and of what all samples share, as a dictionary."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, state, height):
        return {"mean": state.mean(-1, keepdim=True), "state": self.layer(state) * height}


def column(module=None, name=""):
    torch.manual_seed(0)
    inputs = [
        ArraySpec("state", ("level",), (3,), "K", -2.0, 2.0),
        ArraySpec("height", ("level",), (3,), "m", shared=True),
    ]
    outputs = [ArraySpec("state", ("level",), (3,), "K"), ArraySpec("mean", ("one",), (1,))]
    return TracedFunction(module or Column(), inputs, outputs, name=name)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_number_of_samples_and_what_the_file_says(dtype, tmp_path):
    functions = [column(), column(name="again")]
    record = export_onnx(functions, tmp_path / "m.onnx", OnnxOptions(dtype=dtype))
    assert [p.rpartition("/")[2] for p in record["paths"]] == ["m.onnx", "m_again.onnx"]
    session = onnxruntime.InferenceSession(record["path"], providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    for samples in (1, 7):
        state = generator.normal(size=(samples, 3)).astype(dtype)
        height = generator.normal(size=3).astype(dtype)
        names = ["state_next", "mean"]
        own, mean = session.run(names, {"state": state, "height": height})
        with torch.no_grad():
            module = functions[0].module.to(getattr(torch, dtype))
            wanted = module(torch.tensor(state), torch.tensor(height))
            functions[0].module.float()
        np.testing.assert_allclose(own, wanted["state"].numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mean, wanted["mean"].numpy(), rtol=1e-5, atol=1e-6)
    about = json.loads(onnx.load(record["path"]).metadata_props[0].value)
    assert about["inputs"][0] == {
        "name": "state",
        "dims": ["sample", "level"],
        "shape": [-1, 3],
        "units": "K",
        "box": [[-2.0, -2.0], [2.0, 2.0]],
    }


def test_a_file_that_is_not_the_module_is_refused(tmp_path):
    class Mixed(Column):
        def forward(self, state, height):
            return super().forward(state - state.mean(0), height)

    with pytest.raises(ConfigError, match="mixed"):
        export_onnx([column(Mixed())], tmp_path / "m.onnx")
    with pytest.raises(NumericalError, match="tolerance=0"):
        export_onnx([column()], tmp_path / "m.onnx", OnnxOptions(tolerance=0.0))
    # onnxruntime has no convolution in double precision
    specs = [ArraySpec("x", ("c", "a"), (1, 4))], [ArraySpec("y", ("c", "a"), (1, 2))]
    double = TracedFunction(nn.Conv1d(1, 1, 3), *specs)
    with pytest.raises(ConfigError, match="cannot be written"):
        export_onnx([double], tmp_path / "m.onnx", OnnxOptions(dtype="float64"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("earlier", [b"an earlier export", None])
def test_a_failed_export_leaves_the_folder_as_it_was(earlier, tmp_path):
    paths = [tmp_path / "m.onnx", tmp_path / "m_strange.onnx"]
    if earlier:
        for path in paths:
            path.write_bytes(earlier)
    specs = [ArraySpec("x", ("a",), (4,))], [ArraySpec("y", ("b",), (3,))]
    strange = TracedFunction(nn.LSTM(4, 3), *specs, name="strange")
    level = logging.getLogger("torch.onnx").level
    for functions, options in (
        ([column(), strange], OnnxOptions()),
        ([column()], OnnxOptions(tolerance=0.0)),
    ):
        with pytest.raises((ConfigError, NumericalError)):
            export_onnx(functions, paths[0], options)
    assert [p.read_bytes() for p in sorted(tmp_path.iterdir())] == (
        [earlier] * 2 if earlier else []
    )
    assert logging.getLogger("torch.onnx").level == level
