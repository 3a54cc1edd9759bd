"""Layers in 8, 4 and 2 bits compared with onnxruntime and torch at equal bits: one thread, n x n.

Ours is a whole exported surrogate called and timed in C, its checks of inputs and outputs included.
Peers run chains of layers inside their executors, and the time of one additional layer is reported,
without the cost of Python and the session. Peers of 8 bits round inputs to 8 bits, as ours with
`activations=8` does, with a scale for 512 inputs, where peers have one for all, so that it errs
less than torch's int8 (`error`, against float64); `inputs16` is our default, with inputs of 16
bits. Groups of 32 inputs share a scale in 4 and 2 bits on both sides. Products must agree with
those of the codes before anything is timed. `bits8_over_reading_batch1` compares one sample with
reading the n x n bytes of the weights once, the least that any layer of 8 bits does.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from _measure import machine
from deploy_latency import CLOCK
from torch import nn

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.bits.codes import rounded
from scitoolkit.deploy.export import export
from scitoolkit.ops.codegen import load_library

READING = """
#include <stdint.h>
#include <time.h>
typedef int32_t wide __attribute__((vector_size(64), aligned(4), may_alias));
volatile int32_t total;
double reading(const char *p, int64_t size, int calls) {
  double best = 1e9;
  for (int call = 0; call < calls; call++) {
    struct timespec a, b;
    wide s[4] = {0};
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (int64_t i = 0; i + 256 <= size; i += 256)
      for (int k = 0; k < 4; k++) s[k] += *(const wide *)(p + i + 64 * k);
    clock_gettime(CLOCK_MONOTONIC, &b);
    s[0] += s[1] + s[2] + s[3];
    for (int k = 0; k < 16; k++) total += s[0][k];
    const double seconds = (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec);
    if (seconds < best) best = seconds;
  }
  return best;
}
"""
SIZES = (256, 512, 1024, 2048, 4096)
BITS = (8, 4, 2)
ROUNDS, SECONDS = 7, 0.05
PEERS = {
    8: ("torch_int8", "onnxruntime_int8", "onnxruntime_8bits"),
    4: ("onnxruntime_4bits",),
    2: ("onnxruntime_2bits",),
}
ALLOWED = {16: 2e-4, 8: 2e-2}
"""Error of a product from rounding its inputs to some bits, relative to it, in the 2-norm."""


def run() -> dict:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table: dict[str, dict] = {}
    for n in SIZES:
        with tempfile.TemporaryDirectory() as scratch:
            table[str(n)] = measured(n, Path(scratch))
        print(n, table[str(n)], file=sys.stderr, flush=True)
    gains = {
        f"bits{bits}_speedup_batch1": {
            n: peer(t["batch1"], bits) / t["batch1"][f"ours_{bits}bits"] for n, t in table.items()
        }
        for bits in BITS
    }
    gains["bits8_speedup_batch1_inputs16"] = {
        n: peer(t["batch1"], 8) / t["batch1"]["ours_8bits_inputs16"] for n, t in table.items()
    }
    wide = {n: t["batch32"]["ours_8bits"] / t["batch32"]["torch_int8"] for n, t in table.items()}
    least = min(min(gains[f"bits{bits}_speedup_batch1"].values()) for bits in (8, 4))
    return {
        "bits_speedup_batch1_min": least,
        "bits_over_int8_batch32": max(wide.values()),
        **gains,
        "bits8_over_reading_batch1": {
            n: t["batch1"]["ours_8bits"] / t["batch1"]["reading"] for n, t in table.items()
        },
        "bits8_peer_over_reading_batch1": {
            n: peer(t["batch1"], 8) / t["batch1"]["reading"] for n, t in table.items()
        },
        "bits2_over_float32_batch1": {
            n: t["batch1"]["ours_2bits"] / t["batch1"]["torch_float32"] for n, t in table.items()
        },
        "over_int8_batch32": wide,
        "over_int8_batch32_inputs16": {
            n: t["batch32"]["ours_8bits_inputs16"] / t["batch32"]["torch_int8"]
            for n, t in table.items()
        },
        "microseconds": table,
        "matrix_error": matrix_errors(),
        **machine(),
    }


def peer(times: dict[str, float], bits: int) -> float:
    return min(times[name] for name in PEERS[bits])


def matrix_errors() -> dict[str, float]:
    matrix = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)
    return {
        str(b): float(np.linalg.norm(rounded(matrix, b).matrix() - matrix) / np.linalg.norm(matrix))
        for b in BITS
    }


def measured(n: int, folder: Path) -> dict[str, dict]:
    torch.manual_seed(0)
    layer = nn.Linear(n, n).eval()
    ours = {f"{bits}bits": Ours(layer, bits, folder / f"bits{bits}.so") for bits in BITS}
    ours["8bits_inputs16"] = Ours(layer, 8, folder / "inputs16.so", 16)
    depth = 9 if n < 2048 else 3
    out: dict[str, dict] = {
        "product_error": {name: own.error for name, own in ours.items()},
        "error": errors(layer, ours),
    }
    if out["error"]["ours_8bits"] > out["error"]["torch_int8"]:
        raise RuntimeError(f"ours errs more than torch's int8, which is no comparison: {out}")
    for batch in (1, 32):
        x = torch.randn(batch, n)
        calls: dict[str, Callable[[], float]] = {
            f"ours_{name}": own.clock(x.numpy()) for name, own in ours.items()
        }
        calls |= {k: per_layer(make, depth) for k, make in peers(layer, x).items()}
        if batch == 1:
            calls["reading"] = reading(n * n)
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(ROUNDS):
            for name, call in calls.items():
                best[name] = min(best[name], call())
        out[f"batch{batch}"] = {k: 1e6 * v for k, v in best.items()}
    return out


def reading(size: int) -> Callable[[], float]:
    """Return a call that returns the seconds of reading bytes once, of the shortest of many."""
    read = load_library(READING).reading
    read.restype, read.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int]
    memory = np.ones(size, np.uint8)
    calls = max(3, int(SECONDS / max(read(memory.ctypes.data, size, 3), 1e-9)))
    return lambda: read(memory.ctypes.data, size, calls)


def errors(layer: nn.Linear, ours: dict[str, Ours]) -> dict[str, float]:
    """Return the errors against the float64 product of the unrounded weights, in the 2-norm."""
    x = torch.randn(19, layer.in_features)
    exact = (x.double() @ layer.weight.detach().double().T).numpy()
    outputs = {f"ours_{name}": own.library(x.numpy())[0][0] for name, own in ours.items()}
    outputs["torch_int8"] = int8(layer)(x).detach().numpy()
    bias = layer.bias.detach().numpy()
    return {
        name: float(np.linalg.norm(y - bias - exact) / np.linalg.norm(exact))
        for name, y in outputs.items()
    }


def peers(layer: nn.Linear, x: torch.Tensor) -> dict[str, Callable[[int], Callable]]:
    """Return, by name, constructors of chains of a given number of layers."""
    small = int8(layer)
    return {
        "torch_float32": lambda depth: torch_chain(layer, depth, x),
        "torch_int8": lambda depth: torch_chain(small, depth, x),
        "onnxruntime_int8": lambda depth: session(dynamic_int8(layer, depth), x),
        **{
            f"onnxruntime_{bits}bits": lambda depth, bits=bits: session(
                block_bits(layer, bits, depth), x
            )
            for bits in BITS
        },
    }


class Ours:
    """A layer exported in some bits, compared with its codes before it is timed."""

    def __init__(self, layer: nn.Linear, bits: int, path: Path, activations: int = 8) -> None:
        n = layer.in_features
        spec = ArraySpec("x", ("feature",), (n,), low=-8.0, high=8.0)
        typical = [torch.randn(12, n).numpy()]
        options = {"activations": activations} if bits == 8 else {}
        options |= {"group": 512} if options == {"activations": 8} else {}
        export(
            [TracedFunction(layer, [spec], [spec], typical)],
            path,
            ExportConfig(bits=bits, rounding="nearest", **options),
        )
        self.library = CompiledSurrogate(path)
        self.clocked = load_library(CLOCK).shortest
        self.clocked.restype = ctypes.c_double
        self.clocked.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int64,
            *[ctypes.c_void_p] * 3,
            ctypes.c_int64,
            ctypes.c_int,
        ]
        x = torch.randn(19, n).numpy()
        (found,), _ = self.library(x)
        group = options.get("group", 0)
        matrix = rounded(layer.weight.detach().numpy(), bits, group).matrix()
        wanted = x @ matrix.T
        found = found - layer.bias.detach().numpy()
        self.error = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
        if not self.error < ALLOWED[activations]:
            raise RuntimeError(
                f"{bits} bits: products differ from those of the codes: {self.error}"
            )

    def clock(self, x: np.ndarray) -> Callable[[], float]:
        """Return a call that returns the seconds of the shortest of many."""
        self.arrays = x, np.empty_like(x)
        work, size = self.library.workspace()
        function = ctypes.cast(self.library.pointer(), ctypes.c_void_p)
        given = (function, len(x), x.ctypes.data, self.arrays[1].ctypes.data, work, size)
        start = time.perf_counter()
        self.clocked(*given, 3)
        calls = max(3, int(3 * SECONDS / (time.perf_counter() - start)))
        return lambda: self.clocked(*given, calls)


def per_layer(make: Callable[[int], Callable[[], object]], depth: int) -> Callable[[], float]:
    """Return a call that returns the seconds of one more layer: of `depth` less those of one."""
    short, long = make(1), make(depth)

    def shortest(call: Callable[[], object]) -> float:
        best, begin = float("inf"), time.perf_counter()
        while time.perf_counter() - begin < SECONDS or best == float("inf"):
            start = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - start)
        return best

    known = [float("inf")] * 2

    def once() -> float:
        known[0] = min(known[0], shortest(short))
        known[1] = min(known[1], shortest(long))
        return (known[1] - known[0]) / (depth - 1)

    return once


def int8(layer: nn.Linear) -> nn.Module:
    made = torch.ao.quantization.quantize_dynamic(nn.Sequential(layer), {nn.Linear}, torch.qint8)
    return made[0]


def torch_chain(layer: nn.Module, depth: int, x: torch.Tensor) -> Callable[[], object]:
    """Return a call of a frozen chain, which torch's interpreter runs without Python."""
    chain = torch.jit.freeze(torch.jit.script(nn.Sequential(*[layer] * depth).eval()))

    def call() -> object:
        with torch.inference_mode():
            return chain(x)

    return call


def _model(n: int, depth: int, stored: list, nodes_of: Callable) -> bytes:
    from onnx import TensorProto, helper

    nodes = [node for k in range(depth) for node in nodes_of(k)]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", n])
        for name in ("x0", f"x{depth}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], stored)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def dynamic_int8(layer: nn.Linear, depth: int) -> bytes:
    """Return a chain as `quantize_dynamic` of onnxruntime writes it: int8 weights, one scale."""
    from onnx import TensorProto, helper, numpy_helper

    weight = layer.weight.detach().numpy().T
    scale = np.float32(np.abs(weight).max() / 127)
    codes = np.rint(weight / scale).astype(np.int8)
    stored = [
        numpy_helper.from_array(a, k)
        for k, a in (
            ("w", codes),
            ("s", scale),
            ("z", np.int8(0)),
            ("b", layer.bias.detach().numpy()),
        )
    ]

    def nodes(k: int) -> list:
        make = helper.make_node
        return [
            make("DynamicQuantizeLinear", [f"x{k}"], [f"q{k}", f"t{k}", f"u{k}"]),
            make("MatMulInteger", [f"q{k}", "w", f"u{k}", "z"], [f"m{k}"]),
            make("Cast", [f"m{k}"], [f"f{k}"], to=TensorProto.FLOAT),
            make("Mul", [f"t{k}", "s"], [f"v{k}"]),
            make("Mul", [f"f{k}", f"v{k}"], [f"p{k}"]),
            make("Add", [f"p{k}", "b"], [f"x{k + 1}"]),
        ]

    return _model(layer.in_features, depth, stored, nodes)


def block_bits(layer: nn.Linear, bits: int, depth: int, block: int = 32) -> bytes:
    """Return a chain of MatMulNBits with inputs rounded to 8 bits (accuracy_level 4)."""
    from onnx import helper, numpy_helper

    n = layer.in_features
    parts = layer.weight.detach().numpy().reshape(n, n // block, block)
    scales = np.abs(parts).max(2) / (2 ** (bits - 1) - 0.5)
    codes = np.clip(np.rint(parts / scales[..., None]) + 2 ** (bits - 1), 0, 2**bits - 1)
    codes = codes.astype(np.uint8).reshape(n, n // block, -1, 8 // bits)
    packed = sum((codes[..., k] << bits * k) for k in range(8 // bits)).astype(np.uint8)
    stored = [
        numpy_helper.from_array(packed, "w"),
        numpy_helper.from_array(scales.astype(np.float32).ravel(), "s"),
        numpy_helper.from_array(layer.bias.detach().numpy(), "b"),
    ]

    def nodes(k: int) -> list:
        made = helper.make_node(
            "MatMulNBits",
            [f"x{k}", "w", "s", "", "", "b"],
            [f"x{k + 1}"],
            domain="com.microsoft",
            K=n,
            N=n,
            bits=bits,
            block_size=block,
            accuracy_level=4,
        )
        return [made]

    return _model(n, depth, stored, nodes)


def session(model: bytes, x: torch.Tensor) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    made = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = made.io_binding()
    name, out = made.get_inputs()[0].name, made.get_outputs()[0].name
    binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy()))
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(x.shape), np.float32)
    binding.bind_ortvalue_output(out, value)
    return lambda: made.run_with_iobinding(binding)
