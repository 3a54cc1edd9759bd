"""Weights in few bits: codes against what they stand for, C against codes, errors as told."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.bits.codes import rounded
from scitoolkit.deploy.bits.rounding import best_rounding, compensated
from scitoolkit.deploy.differences import conformal_bound
from scitoolkit.deploy.export import export
from scitoolkit.ops.codegen.compile import WIDE

RANDOM = np.random.default_rng(0)
SIZES = {"wide": (16, 200), "odd": (301, 83)}
"""Inputs and outputs of single layers: rests of groups, of vectors and of blocks."""


@pytest.mark.parametrize(("bits", "most"), [(8, 0.01), (4, 0.1), (2, 0.36)])
def test_codes_stand_for_the_matrix_within_the_error_of_their_bits(bits, most):
    matrix = RANDOM.normal(size=(40, 100)).astype(np.float32)
    coded = rounded(matrix, bits)
    assert np.linalg.norm(coded.matrix() - matrix) < most * np.linalg.norm(matrix)
    np.testing.assert_array_equal(rounded(coded.matrix(), 8).codes.shape, matrix.shape)
    assert coded.bytes < matrix.nbytes * (bits + 2) / 32


def test_a_row_of_zeros_stays_zero_and_8_bits_keep_zeros():
    matrix = RANDOM.normal(size=(4, 64)).astype(np.float32)
    matrix[1], matrix[2, ::2] = 0, 0
    for bits in (8, 4, 2):
        np.testing.assert_array_equal(rounded(matrix, bits).matrix()[1], 0)
    np.testing.assert_array_equal(rounded(matrix, 8).matrix()[2, ::2], 0)


@pytest.mark.parametrize("bits", [4, 2])
def test_compensated_rounding_changes_products_with_correlated_inputs_less(bits):
    matrix = RANDOM.normal(size=(24, 64)).astype(np.float32)
    mixing = RANDOM.normal(size=(8, 64))
    first, second = (
        (RANDOM.normal(size=(500, 8)) @ mixing + 0.1 * RANDOM.normal(size=(500, 64))).astype("f")
        for _ in range(2)
    )

    def change(coded):
        return np.linalg.norm(second @ (coded.matrix() - matrix).T)

    plain, better = rounded(matrix, bits), compensated(matrix, first, bits)
    assert change(better) < 0.6 * change(plain)
    assert change(best_rounding(matrix, first, second, bits)) <= change(better)


@pytest.fixture(scope="module", params=[8, 4, 2])
def layers(request, tmp_path_factory):
    """Single layers of several sizes in one file, compiled once for each number of bits."""
    torch.manual_seed(request.param)
    functions = []
    for name, (inputs, outputs) in SIZES.items():
        module = nn.Linear(inputs, outputs, bias=name != "wide")
        functions.append(
            TracedFunction(
                module,
                [ArraySpec("x", ("k",), (inputs,), low=-4.0, high=4.0)],
                [ArraySpec("y", ("k",), (outputs,), "m")],
                name=name,
            )
        )
    path = tmp_path_factory.mktemp("bits") / "layers.so"
    found = export(functions, path, ExportConfig(bits=request.param, rounding="nearest"))
    return request.param, functions, CompiledSurrogate(path), found, path


@pytest.mark.parametrize("name", SIZES)
def test_products_equal_those_of_the_codes_with_rounded_inputs(layers, name):
    """The integers of a group are the same in C and here: what differs is the sum of groups."""
    bits, functions, library, *_ = layers
    layer = next(f.module for f in functions if f.name == name)
    coded = rounded(layer.weight.detach().numpy(), bits)
    x = RANDOM.normal(size=(19, layer.in_features)).astype(np.float32)
    (found,), _ = library(x, function=name)
    most = min(32767, (2**31 - 1) // (127 * coded.group)) if bits == 8 else 127
    wanted = np.zeros((19, layer.out_features))
    for first in range(0, layer.in_features, coded.group):
        part = x[:, first : first + coded.group]
        unit = np.abs(part).max(1, keepdims=True) / np.float32(most)
        near = np.rint(part * (np.float32(most) / np.abs(part).max(1, keepdims=True))) * unit
        wanted += near @ coded.matrix()[:, first : first + coded.group].T.astype(float)
    if layer.bias is not None:
        wanted += layer.bias.detach().numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    dense = x @ coded.matrix().T.astype(float)
    stated = 1e-4 if bits == 8 else 2e-2
    dense = dense if layer.bias is None else dense + layer.bias.detach().numpy()
    assert np.linalg.norm(found - dense) < stated * np.linalg.norm(dense)


def test_a_sample_does_not_depend_on_the_others_of_its_call(layers):
    _, _, library, *_ = layers
    x = RANDOM.normal(size=(21, 301)).astype(np.float32)
    (together,), _ = library(x, function="odd")
    for k in (0, 15, 20):
        np.testing.assert_array_equal(library(x[k : k + 1], function="odd")[0][0][0], together[k])


def test_the_header_and_the_result_tell_what_compression_changed(layers):
    bits, functions, library, found, path = layers
    assert [d["output"] for d in found["differences"]] == [f"{n}.y" for n in SIZES]
    text = path.with_suffix(".h").read_text()
    for told in found["differences"]:
        assert f"{bits} bits: {told['text']}" in text
        assert 0 < told["quantile999"] <= told["maximum"]
        assert told["bound"] <= told["maximum"]
    # the told maximum is that of fresh samples from the box, about
    x = RANDOM.uniform(-4, 4, (256, 301)).astype(np.float32)
    (y,), _ = library(x, function="odd")
    dense = next(f.module for f in functions if f.name == "odd")(torch.from_numpy(x))
    change = np.abs(y - dense.detach().numpy()).max()
    assert 0.5 < change / found["differences"][1]["maximum"] < 2
    weights = sum(4 * f.module.weight.numel() for f in functions)
    assert found["weight_bytes"] < weights * {8: 0.45, 4: 0.35, 2: 0.3}[bits]


@pytest.mark.parametrize("vectors", [512, 256, 128])
@pytest.mark.parametrize("without", [(), ("-mno-avx512vnni", "-mno-avxvnni")])
def test_inputs_of_8_bits_give_the_same_integers_by_all_instructions(
    vectors, without, tmp_path, monkeypatch
):
    """Largest codes and inputs, whose sums of pairs exceed 16 bits."""
    layer, largest = nn.Linear(301, 83), np.ones(301, np.float32)
    layer.weight.data[0] = torch.tensor(np.where(np.arange(301) % 3, 1.0, -1.0))
    specs = (ArraySpec("x", ("k",), (301,)), ArraySpec("y", ("k",), (83,)))
    monkeypatch.setattr("scitoolkit.deploy.export.WIDE", (*WIDE, *without))
    config = ExportConfig(bits=8, activations=8, vectors=vectors)
    record = export([TracedFunction(layer, *([s] for s in specs))], tmp_path / "m.so", config)
    x = np.concatenate([RANDOM.normal(size=(21, 301)).astype(np.float32), [largest, -largest]])
    (own,), _ = CompiledSurrogate(tmp_path / "m.so")(x.astype(np.float32))
    coded = rounded(layer.weight.detach().numpy(), 8)
    wanted = np.zeros((23, 83)) + layer.bias.detach().numpy()
    for first in range(0, 301, coded.group):
        part = x[:, first : first + coded.group].astype(np.float32)
        size = np.abs(part).max(1, keepdims=True)
        near = np.rint(part * (np.float32(127) / size)) * (size / np.float32(127))
        wanted += near @ coded.matrix()[:, first : first + coded.group].T.astype(float)
    np.testing.assert_allclose(own, wanted, atol=1e-5 * np.abs(wanted).max())
    assert 1e-3 < record["differences"][0]["relative"] < 0.02
    with pytest.raises(ValueError, match="activations without bits=8"):
        ExportConfig(bits=4, activations=8)


class Several(nn.Module):
    """A recurrent layer, a layer on (B, T, F), a shared one and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.recurrent = nn.Conv1d(3, 20, 3, padding=1), nn.GRU(20, 24)
        self.head, self.small = nn.Linear(24, 24), nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convolution(x).permute(2, 0, 1)
        y = self.recurrent(y)[0].transpose(0, 1)
        return self.small(self.head(torch.tanh(self.head(y))))


def test_recurrent_and_shared_layers_are_compressed_and_others_named(tmp_path):
    module = Several()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    held_out = RANDOM.normal(size=(40, 3, 5)).astype(np.float32)
    function = TracedFunction(
        module,
        [ArraySpec("x", ("c", "t"), (3, 5))],
        [ArraySpec("y", ("t", "c"), (5, 2))],
        [RANDOM.normal(size=(64, 3, 5)).astype(np.float32)],
        held_out=[held_out],
    )
    found = export([function], tmp_path / "model.so", ExportConfig(bits=8))
    assert found["compressed"] == ["head", "recurrent.weight_hh_l0", "recurrent.weight_ih_l0"]
    assert found["dense"] == ["convolution (Conv1d)", "small (Linear)"]
    for key, value in module.state_dict().items():  # the caller's model is as it was
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)
    (y,), _ = CompiledSurrogate(tmp_path / "model.so")(held_out)
    with torch.no_grad():
        change = np.abs(y - module(torch.from_numpy(held_out)).numpy())
    (told,) = found["differences"]
    assert told["source"] == "held-out data"
    assert told["samples"] == 40
    assert told["maximum"] == pytest.approx(float(change.max()), rel=1e-3)
    assert told["bound"] == pytest.approx(np.sort(change.max((1, 2)))[36], rel=1e-3)


def test_what_cannot_be_in_few_bits_is_refused_and_writes_nothing(tmp_path):
    x, y = [ArraySpec("x", ("k",), (32,))], [ArraySpec("y", ("k",), (32,))]
    linear = TracedFunction(nn.Sequential(nn.Linear(32, 32)), x, y)
    with pytest.raises(NumericalError, match=r"max_error=0\.001 of its range"):
        export([linear], tmp_path / "a.so", ExportConfig(bits=2, max_error=0.001))
    plane = TracedFunction(
        nn.Conv1d(1, 1, 3, padding=1),
        [ArraySpec("x", ("c", "k"), (1, 8))],
        [ArraySpec("y", ("c", "k"), (1, 8))],
    )
    with pytest.raises(ConfigError, match="linear and recurrent layers"):
        export([plane], tmp_path / "a.so", ExportConfig(bits=4))
    with pytest.raises(ConfigError, match="no layer 'heads'"):
        export([linear], tmp_path / "a.so", ExportConfig(bits=4, keep=["heads"]))
    with pytest.raises(ConfigError, match="linear and recurrent layers"):
        export([linear], tmp_path / "a.so", ExportConfig(bits=4, keep=["0"]))
    with pytest.raises(ValueError, match="max_error without bits"):
        ExportConfig(max_error=0.1)
    assert not list(tmp_path.iterdir())


def test_bounds_hold_as_often_as_they_say():
    inside = []
    for _ in range(400):
        scores = RANDOM.exponential(size=30)
        inside.append(scores[-1] <= conformal_bound(scores[:-1]))
    assert 0.86 < np.mean(inside) < 0.95
    assert conformal_bound(np.arange(8.0)) is None
