"""The codec of activations on GPUs: bound, zeros and signs of any values; its kernels elsewhere."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_line import run_code
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.ops.codegen import triton_version
from scitoolkit.training.memory.block_codec import DTYPES, SLOT, WIDTHS, Encoding, decode, matrix
from scitoolkit.training.memory.comet import Comet
from scitoolkit.training.memory.config import MemoryConfig

needs_triton = pytest.mark.skipif(not triton_version(), reason="triton is not installed")

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from scitoolkit.ops.codegen import load_triton
from scitoolkit.training.memory.block_kernels import SOURCE

numbers = dict.fromkeys(("count", "height", "width", "down", "across"), "i32")
numbers |= dict.fromkeys(("factor", "smallest", "most"), "fp32")
numbers |= dict.fromkeys(("SLOTS", "SIZES", "DATA"), "*u8") | {"STARTS": "*i64"}
for name in ("encode", "move", "decode"):
    kernel = getattr(load_triton(SOURCE), name)
    types = {each: numbers.get(each, "*fp32") for each in kernel.arg_names}
    if name == "encode":
        types["X"] = "*bf16"
    options = {"enable_fp_fusion": True}
    done = triton.compile(ASTSource(kernel, types), GPUTarget("cuda", 90, 32), options)
    assert len(done.asm["cubin"]) > 1000
    assert "atom." not in done.asm["ptx"]
    print("compiled", name)
"""


def _python(*arguments, **environment):
    root = Path(__file__).parents[3]
    inherited = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env={**inherited, **environment}, cwd=root, capture_output=True, text=True
    )


@needs_triton
def test_kernels_under_the_interpreter():
    file = str(Path(__file__).with_name("test_block_kernels.py"))
    done = _python("-m", "pytest", "-qx", "-p", "no:cacheprovider", file, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


@needs_triton
def test_kernels_compile_for_a_gpu_without_atomics(tmp_path):
    done = run_code(tmp_path, COMPILE, TRITON_CACHE_DIR=str(tmp_path))
    assert done.code == 0, done.err[-2000:]
    assert done.out.count("compiled") == 3


def test_the_transform_is_orthonormal_and_the_largest_block_fills_a_slot():
    dct = matrix(torch.device("cpu")).double()
    assert torch.allclose(dct @ dct.T, torch.eye(64, dtype=torch.float64), atol=1e-6)
    assert 1 + 4 + 3 + 8 + 8 * WIDTHS[-1] == SLOT < 256


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 19), min_size=1, max_size=4),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([1e-30, 1e-6, 1.0, 3e4, 1e15]),
    relative=st.floats(1e-4, 5),
    zeros=st.sampled_from(["none", "half", "most", "all"]),
    sign=st.sampled_from([None, 1, -1]),
    seed=st.integers(0, 99),
)
def test_any_values_keep_zeros_signs_and_the_bound(
    shape, dtype, scale, relative, zeros, sign, seed
):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    x = x if sign is None else sign * x.abs()
    share = {"none": -1.0, "half": 0.5, "most": 0.97, "all": 2.0}[zeros]
    x = x * scale * (torch.rand(shape, generator=generator) > share)
    x = x.to(dtype)
    blocks = Encoding(x, relative).finish()
    if not bool(x.double().isfinite().all()):
        assert blocks is None
        return
    if blocks is None:  # a quarter is not saved, or squares are not finite
        return
    assert blocks.num_bytes <= 0.75 * x.nbytes + 8
    y = decode(blocks)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    assert bool(y.isfinite().all())
    assert torch.equal(y == 0, x == 0)
    assert bool((y >= 0).all()) or bool((x < 0).any())
    step = float(blocks.numbers[0])
    rounding = torch.finfo(dtype).eps * float(x.double().abs().max())
    half = torch.finfo(torch.float16)
    smallest = half.tiny * half.eps if dtype == torch.float16 else 0.0
    off = float((x.double() - y.double()).square().sum().sqrt())
    assert off <= (0.6 * step + rounding + smallest) * (2 * x.numel() + 64) ** 0.5


def test_smooth_fields_and_zeros_take_few_bytes():
    row = torch.linspace(0, 9, 128).sin()
    x = (row[:, None] * row).expand(2, 4, 128, 128).contiguous()
    assert x.nbytes > 20 * Encoding(x, 0.1).finish().num_bytes
    blocks = Encoding(torch.zeros(100, 64), 0.1).finish()
    assert blocks.num_bytes == 104 + 8
    assert not decode(blocks).any()


@pytest.mark.device
def test_gradients_on_a_device_with_compressed_activations():
    """On a GPU that is pretended as well: in torch, with tensors of that device."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    net.to("cuda")
    x = torch.linspace(-2, 2, 80).reshape(10, 8).to("cuda")
    store = Comet(net, MemoryConfig(activations="comet", smallest=1))
    found = []
    for context in (contextlib.nullcontext(), store.saving({"x": x}, 1.0)):
        net.zero_grad()
        with context:
            loss = net(x).square().mean()
        loss.backward()
        found.append(torch.cat([p.grad.flatten() for p in net.parameters()]).cpu())
    assert torch.allclose(*found, rtol=0.3, atol=0.05)
    blocks = Encoding(x, 0.1).finish()
    y = decode(blocks)
    assert {y.device.type, blocks.data.device.type} == {"cuda"}
    assert float((y - x).abs().max()) < 0.5
    assert torch.equal(y.cpu(), decode(Encoding(x.cpu(), 0.1).finish()))
