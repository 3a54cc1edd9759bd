"""Surrogates as C compared with onnxruntime: one thread, the same weights, alternating.

A network 60-128-128-60 with ReLU, one sample (timed in C) and 64 (both called from Python through
their thinnest interface: ctypes, IO binding); the shipped emulator, one step.
`emulator_compressed_over_onnxruntime` is the same emulator in low rank, with ranks and fine-tuning
as in `deploy_rank` but for a shorter call, over onnxruntime's time of the uncompressed emulator;
its one-step errors on the test simulation relative to those of the emulator are also reported (mean
and worst variable). Few bits are no alternative here, because convolutions keep float32.
`exports_ok` is whether every shipped surrogate is exported and agrees with its model. The outputs
of both must agree before anything is timed.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from _measure import machine
from deploy_rank import NAME, chosen_ranks, fine_tuned, one_step
from torch import nn

from scitoolkit import api
from scitoolkit.core.content import content_root, list_content
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate
from scitoolkit.deploy.export import export
from scitoolkit.generators.base import Origin
from scitoolkit.generators.mesh_tracer import MeshTracer
from scitoolkit.ops.codegen import load_library

ROUNDS, CALLS = 15, 2000
SHARE = 0.42
"""Of the layers' time that is left in low rank."""
CLOCK = """
#include <stdint.h>
#include <time.h>
double shortest(int (*call)(int64_t, const float *, float *, void *, int64_t, int32_t *),
                int64_t samples, const float *x, float *y, void *work, int64_t bytes, int calls) {
  double best = 1e9;
  for (int k = 0; k < calls; k++) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    call(samples, x, y, work, bytes, 0);
    clock_gettime(CLOCK_MONOTONIC, &b);
    const double seconds = (b.tv_sec - a.tv_sec) + 1e-9 * (b.tv_nsec - a.tv_nsec);
    if (seconds < best) best = seconds;
  }
  return best;
}
"""


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        return {**network(folder), **emulator(folder), "exports_ok": exports(folder), **machine()}


def network(folder: Path) -> dict:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(60, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 60)
    ).eval()
    column = ArraySpec("column", ("level",), (60,), low=-6.0, high=6.0)
    export([TracedFunction(model, [column], [column])], folder / "mlp.so")
    library = CompiledSurrogate(folder / "mlp.so")
    x = torch.randn(64, 60)
    torch.onnx.export(
        model, (x,), str(folder / "mlp.onnx"), dynamo=True, verbose=False, external_data=False
    )
    theirs, found = bound(folder / "mlp.onnx", [x.numpy()])
    theirs()
    (own,), _ = library(x.numpy())
    agree([own], found())
    clock = load_library(CLOCK).shortest
    clock.restype = ctypes.c_double
    work, size = library.workspace()
    clock.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int64,
        *[ctypes.c_void_p] * 3,
        ctypes.c_int64,
        ctypes.c_int,
    ]
    function = ctypes.cast(library.pointer(), ctypes.c_void_p)
    given = (function, 1, x.data_ptr(), own.ctypes.data, work, size, 20 * CALLS)
    one = min(clock(*given) for _ in range(5))
    ours = caller(library, [x.numpy()], [own])
    ratio, seconds = compare(ours, theirs, CALLS)
    return {
        "mlp_us": 1e6 * one,
        "mlp_batch64_over_onnxruntime": ratio,
        "mlp_batch64_us": 1e6 * seconds[0],
        "mlp_batch64_us_onnxruntime": 1e6 * seconds[1],
    }


def emulator(folder: Path) -> dict:
    export_to = folder / "emulator.so"
    api.export("rb2d_emulator", export_to)
    api.export("rb2d_emulator", folder / "emulator.onnx")
    library = CompiledSurrogate(export_to)
    job, path = api._job_of("rb2d_emulator")
    inputs = [np.ascontiguousarray(e[:1]) for e in job.traced(path)[0].examples]
    outputs, _ = library(*inputs)
    theirs, found = bound(folder / "emulator.onnx", inputs)
    theirs()
    agree(outputs, found())
    ratio, seconds = compare(caller(library, inputs, list(outputs)), theirs, 1)
    small, errors = compressed(folder)
    small_ratio, small_seconds = compare(caller(small, inputs, list(outputs)), theirs, 1)
    return {
        "emulator_over_onnxruntime": ratio,
        "emulator_ms": 1e3 * seconds[0],
        "emulator_ms_onnxruntime": 1e3 * seconds[1],
        "emulator_compressed_over_onnxruntime": small_ratio,
        "emulator_compressed_ms": 1e3 * small_seconds[0],
        "emulator_compressed_error_ratio": float(np.mean(errors)),
        "emulator_compressed_error_ratio_worst_variable": float(np.max(errors)),
    }


def compressed(folder: Path) -> tuple[CompiledSurrogate, np.ndarray]:
    """Return the emulator in low rank, and its one-step errors over those of the emulator."""
    found, _, ranks = chosen_ranks(folder, SHARE)
    trained, _ = fine_tuned(api._job_of(NAME)[1], ranks, folder)
    export(api._job_of(trained)[0].traced(trained), folder / "low_rank.so")
    files = [folder / "low_rank.so", folder / "dense.so"]
    after, before = (np.array(one_step(file, found.functions[0])) for file in files)
    return CompiledSurrogate(files[0]), after / before


def bound(path: Path, inputs: list[np.ndarray]):
    """Return a call of onnxruntime whose arrays are bound once, and a reader of its results."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for entry, array in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_ortvalue_input(entry.name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    for entry in session.get_outputs():
        shape = [n for n in entry.shape]
        value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32)
        binding.bind_ortvalue_output(entry.name, value)
    return lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu


def caller(library: CompiledSurrogate, inputs: list[np.ndarray], outputs: list[np.ndarray]):
    """Return a call of an export whose arguments are converted once."""
    call = library.pointer()
    call.argtypes = None
    work, size = library.workspace()
    arrays = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs, *outputs)]
    given = [
        ctypes.c_int64(len(inputs[0])),
        *arrays,
        ctypes.c_void_p(work),
        ctypes.c_int64(size),
        None,
    ]
    return lambda: call(*given)


def compare(ours, theirs, calls: int) -> tuple[float, list[float]]:
    """Return the ratio of the shortest calls, ours over theirs, and both in seconds."""
    import time

    best = [float("inf")] * 2
    for _ in range(ROUNDS if calls > 1 else 4 * ROUNDS):
        for place, function in enumerate((ours, theirs)):
            for _ in range(max(1, calls // 10)):
                start = time.perf_counter()
                function()
                best[place] = min(best[place], time.perf_counter() - start)
    return best[0] / best[1], best


def agree(ours, theirs) -> None:
    for own, other in zip(ours, theirs, strict=True):
        largest = float(np.abs(np.asarray(other)).max())
        if float(np.abs(own - other).max()) > 1e-4 * largest:
            raise RuntimeError("the export and onnxruntime do not agree")


def exports(folder: Path) -> bool:
    """Export every shipped surrogate; each is compared with its model by the export."""
    for name in list_content("surrogates"):
        target = folder / (name if name == "acac_mace" else f"{name}.so")
        source = with_meshes(folder) if name == "mesh_diffusion" else name
        found = api.export(source, target)
        print(f"{name}: differs by {found['largest_difference']:.1e}", file=sys.stderr)
    return True


def with_meshes(folder: Path) -> Path:
    """Return the mesh surrogate with its data, which a generator makes."""
    surrogate = shutil.copytree(content_root("surrogates") / "mesh_diffusion", folder / "meshes")
    maker = MeshTracer(meshes=content_root("datasets") / "mesh_diffusion")
    data = folder / "mesh_diffusion.h5"
    sample = maker.sample({}, seed=0)
    maker.write(sample, Origin(maker.model_dump(mode="json"), 0), data)
    config = surrogate / "config.yaml"
    text = config.read_text().replace(
        "../../datasets/mesh_diffusion/trajectories/sample_00000.h5", str(data)
    )
    config.write_text(text)
    return surrogate
