"""Fused gather + tensor product + scatter against e3nn and cuEquivariance on one CPU core.

Ours and the peers run alternately in one process on the same input, one thread, float32, process
CPU time; the figure is the ratio of medians to the fastest peer. Before any timing, outputs and
all first and second derivatives are compared with e3nn in float64. Building `Edges` (once per
neighbour list) is outside the timed calls and printed beside them. torch.compile of e3nn takes a
quarter of a minute per problem: SCITOOLKIT_BENCH_COMPILE=1 adds it to the peers.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / ".venv-peers" / "e3nn" / "bin" / "python"
EDGES, NODES = 10_000, 500
UVW_EDGES = 2_000  # weights per edge are 10^4 floats: with gradients 10,000 edges exceed memory

UVU = {
    "nequip-water": ("32x0o+32x0e+32x1o+32x1e", "0e+1o", "32x0o+32x0e+32x1o+32x1e"),
    "mace-64-L2": ("64x0e+64x1o", "0e+1o+2e", "64x0e+64x1o+64x2e"),
    "mace-medium": ("128x0e+128x1o", "0e+1o+2e+3o", "128x0e+128x1o+128x2e"),
    "mace-large": ("128x0e+128x1o+128x2e", "0e+1o+2e+3o", "128x0e+128x1o+128x2e+128x3o"),
    "revmd17-aspirin": ("64x0o+64x0e+64x1o+64x1e", "0e+1o", "64x0o+64x0e+64x1o+64x1e"),
    "nequip-lips": (
        "32x0o+32x0e+32x1o+32x1e+32x2o+32x2e", "0e+1o+2e", "32x0o+32x0e+32x1o+32x1e+32x2o+32x2e",
    ),
    "sevennet-first": ("128x0e", "0e+1e+2e+3e", "128x0e+64x1e+32x2e+32x3e"),
}  # fmt: skip
UVW = {
    "diffdock-L1": ("10x1o+10x1e+48x0e+48x0o", "0e+1o", "10x1o+10x1e+48x0e+48x0o"),
    "e3tools-conv": ("64x0e+16x1o", "0e+1o", "80x0e+16x1o"),
}
LIMITS = {"forward": 1e-6, "backward": 1e-6, "double": 1e-5}


def _fully_connected(in1, in2, out):
    from e3nn import o3

    in1, in2, out = o3.Irreps(in1), o3.Irreps(in2), o3.Irreps(out)
    instructions = [
        (i, j, k, "uvw", True)
        for i, (_, a) in enumerate(in1)
        for j, (_, b) in enumerate(in2)
        for k, (_, c) in enumerate(out)
        if c in a * b
    ]
    return out, instructions


class Problem:
    """One problem: inputs, ours and the peers as functions of (x, y, w) in their own layout."""

    def __init__(self, name: str, mode: str) -> None:
        from e3nn import o3

        from scitoolkit.ops.tensor_product import (
            Edges,
            TensorProductSpec,
            change_layout,
            channelwise_instructions,
            tensor_product_convolution,
        )

        in1, in2, wanted = (UVU if mode == "uvu" else UVW)[name]
        self.edges = EDGES if mode == "uvu" else UVW_EDGES
        nodes = NODES if mode == "uvu" else NODES * UVW_EDGES // EDGES
        make = channelwise_instructions if mode == "uvu" else _fully_connected
        out, instructions = make(in1, in2, wanted)
        self.spec = spec = TensorProductSpec.build(in1, in2, out, instructions)
        arguments = (in1, in2, out, instructions)
        options = {"shared_weights": False, "internal_weights": False}
        module = o3.TensorProduct(*arguments, **options)
        torch.set_default_dtype(torch.float64)  # e3nn keeps constants in the default dtype
        self.exact = o3.TensorProduct(*arguments, **options)
        torch.set_default_dtype(torch.float32)
        generator = torch.Generator().manual_seed(0)
        index = torch.randint(0, nodes, (2, self.edges), generator=generator)
        sender, receiver = index[0], index[1].sort().values
        self.nodes, self.sender, self.receiver = nodes, sender, receiver
        begin = time.process_time()
        graph = Edges.build(sender, receiver, nodes)
        self.graph_ms = 1e3 * (time.process_time() - begin)
        shapes = (nodes, spec.dim_in1), (self.edges, spec.dim_in2), (self.edges, spec.weight_numel)
        self.inputs = [torch.randn(shape, generator=generator) for shape in shapes]
        x, y, w = self.inputs
        self.packed = [change_layout(x, spec.in1, "ir_mul"), y, w]
        self.unpack = lambda rows, side: change_layout(rows, getattr(spec, side), "mul_ir")
        self.ours = lambda x, y, w: tensor_product_convolution(spec, x, y, w, graph, backend="cpu")
        self.peers = {"e3nn": (self._unfused(module), self.inputs)}
        if os.environ.get("SCITOOLKIT_BENCH_COMPILE") == "1":
            self._add_compiled(arguments, options)
        if importlib.util.find_spec("cuequivariance_torch"):
            self._add_cuequivariance(in1, in2, wanted, mode)

    def _unfused(self, module):
        def convolution(x, y, w):
            message = module(x[self.sender], y, w)
            zeros = message.new_zeros(self.nodes, message.shape[1])
            return zeros.index_add(0, self.receiver, message)

        return convolution

    def _add_compiled(self, arguments, options) -> None:
        import e3nn
        from e3nn import o3

        before = dict(e3nn.get_optimization_defaults())
        e3nn.set_optimization_defaults(jit_mode="eager")
        module = torch.compile(o3.TensorProduct(*arguments, **options))
        e3nn.set_optimization_defaults(**before)
        self.peers["e3nn-compile"] = (self._unfused(module), self.inputs)

    def _add_cuequivariance(self, in1, in2, wanted, mode) -> None:
        import cuequivariance as cue
        import cuequivariance_torch as cuet

        kind = cuet.ChannelWiseTensorProduct if mode == "uvu" else cuet.FullyConnectedTensorProduct
        irreps = [cue.Irreps("O3", each) for each in (in1, in2, wanted)]
        module = kind(*irreps, layout=cue.ir_mul, shared_weights=False, internal_weights=False)
        if module.weight_numel == self.spec.weight_numel:
            self.peers["cuequivariance"] = (self._unfused(module), self.packed)


def forward(function, inputs):
    with torch.no_grad():
        return function(*inputs)


def _leaves(inputs):
    return [each.detach().requires_grad_() for each in inputs]


def forward_backward(function, inputs):
    leaves = _leaves(inputs)
    return torch.autograd.grad(function(*leaves).square().sum(), leaves)


def double_backward(function, inputs):
    """What a force loss does: forward, gradient kept differentiable, gradient of that."""
    leaves = _leaves(inputs)
    energy = function(*leaves).square().sum()
    grads = torch.autograd.grad(energy, leaves[1:], create_graph=True)
    loss = sum(each.square().sum() for each in grads) + energy
    return torch.autograd.grad(loss, leaves)


WORK = {"forward": forward, "backward": forward_backward, "double": double_backward}


def check(problem: Problem, rows: int = 1000) -> dict[str, float]:
    """Return relative errors against e3nn in float64 on the first edges; raise when too large."""
    from scitoolkit.ops.tensor_product import Edges, tensor_product_convolution

    rows = min(rows, problem.edges)
    sender, receiver = problem.sender[:rows], problem.receiver[:rows]
    edges = Edges.build(sender, receiver, problem.nodes)

    def ours(x, y, w):
        return tensor_product_convolution(problem.spec, x, y, w, edges, backend="cpu")

    def exact(x, y, w):
        message = problem.exact(x[sender], y, w)
        return message.new_zeros(problem.nodes, message.shape[1]).index_add(0, receiver, message)

    def cut(inputs):
        return [inputs[0], inputs[1][:rows], inputs[2][:rows]]

    errors = {}
    for name, work in WORK.items():
        got = work(ours, cut(problem.packed))
        want = work(exact, [each.double() for each in cut(problem.inputs)])
        if name == "forward":
            pairs = [(problem.unpack(got, "out"), want)]
        else:
            pairs = [(problem.unpack(got[0], "in1"), want[0]), *zip(got[1:], want[1:], strict=True)]
        errors[name] = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
        if not errors[name] <= LIMITS[name]:
            raise SystemExit(f"{name}: error {errors[name]:.2e} above {LIMITS[name]:.0e}")
    return errors


def cpu_seconds(call) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def alternate(calls: dict, seconds: float = 2.5) -> dict[str, float]:
    """Return the median CPU time of each call, run in turn; ours more often, it is short."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    begin = time.perf_counter()
    while min(map(len, times.values())) < 3 or (
        time.perf_counter() - begin < seconds and min(map(len, times.values())) < 15
    ):
        for name, call in calls.items():
            repeats = 3 if name == "ours" else 1
            times[name] += [cpu_seconds(call) for _ in range(repeats)]
    return {name: statistics.median(each) for name, each in times.items()}


def machine_rates() -> tuple[float, float]:
    """Return (float32 multiply-add flop/s of sgemm, bytes/s of a copy) on one thread."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    source, target = torch.randn(16 << 20), torch.empty(16 << 20)
    gemm = min(cpu_seconds(lambda: a @ b) for _ in range(8))
    copy = min(cpu_seconds(lambda: target.copy_(source)) for _ in range(8))
    return 2 * 1024**3 / gemm, 2 * 4 * (16 << 20) / copy


def floor_seconds(problem: Problem, rates: tuple[float, float]) -> float:
    """Return the least time of the forward: the larger of arithmetic and memory traffic."""
    spec, flops = problem.spec, 0
    for path in spec.paths:
        a, b, c = spec.in1[path.in1], spec.in2[path.in2], spec.out[path.out]
        nonzero = int((abs(spec.coefficients(path)) > 1e-9).sum())
        if path.mode == "uvu":
            flops += a.mul * b.mul * (2 * nonzero + c.components)
        else:
            flops += a.mul * b.mul * (2 * nonzero + 2 * c.mul * c.components)
    per_edge = 4 * (spec.weight_numel + spec.dim_in2) + 24
    per_node = 4 * (spec.dim_in1 + spec.dim_out)
    traffic = problem.edges * per_edge + problem.nodes * per_node
    return max(flops * problem.edges / rates[0], traffic / rates[1])


def thread_scaling(problem: Problem) -> float:
    """Return wall time of one thread over two, best of several, forward and backward."""
    times = {}
    for _ in range(6):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            begin = time.perf_counter()
            forward(problem.ours, problem.packed)
            elapsed = time.perf_counter() - begin
            times[threads] = min(times.get(threads, elapsed), elapsed)
    torch.set_num_threads(1)
    return times[1] / times[2]


def measure(name: str, mode: str, rates: tuple[float, float]) -> dict:
    problem = Problem(name, mode)
    figures = {"edges": problem.edges, "errors": check(problem), "graph_ms": problem.graph_ms}
    for work_name, work in WORK.items():
        calls = {"ours": lambda w=work: w(problem.ours, problem.packed)}
        for peer, (function, inputs) in problem.peers.items():
            if (work_name, peer) != ("double", "e3nn-compile"):  # torch.compile cannot do it
                calls[peer] = lambda w=work, f=function, i=inputs: w(f, i)
        times = alternate(calls)
        ours = times.pop("ours")
        figures[work_name] = {
            "ours_ms": 1e3 * ours,
            **{f"{peer}_ms": 1e3 * each for peer, each in times.items()},
            "speedup": min(times.values()) / ours,
        }
        gc.collect()
    figures["floor_share"] = floor_seconds(problem, rates) / (figures["forward"]["ours_ms"] / 1e3)
    if name == "mace-large":
        figures["thread_scaling_2"] = thread_scaling(problem)
    print(name, json.dumps(figures), file=sys.stderr, flush=True)
    return figures


def _in_this_interpreter() -> dict:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    only = os.environ.get("SCITOOLKIT_BENCH_PROBLEMS", "").split(",")
    chosen = [
        (name, mode)
        for mode, table in (("uvu", UVU), ("uvw", UVW))
        for name in table
        if only == [""] or name in only
    ]
    rates = machine_rates()
    problems = {name: measure(name, mode, rates) for name, mode in chosen}
    figures = {"sgemm_gflops": rates[0] / 1e9, "copy_gb_s": rates[1] / 1e9}
    uvu = [problems[name] for name in UVU if name in problems]
    for key, work in (
        ("forward_speedup_min", "forward"),
        ("forward_backward_speedup_min", "backward"),
        ("double_backward_speedup_min", "double"),
    ):
        if uvu:
            figures[key] = min(each[work]["speedup"] for each in uvu)
    uvw = [problems[name] for name in UVW if name in problems]
    if uvw:
        figures["uvw_speedup_min"] = min(each["forward"]["speedup"] for each in uvw)
    if "mace-large" in problems:
        figures["thread_scaling_2"] = problems["mace-large"]["thread_scaling_2"]
        figures["floor_share_mace_large"] = problems["mace-large"]["floor_share"]
    return {**figures, "problems": problems}


def run() -> dict:
    """Return the figures, measured where the peers are: here, or in their own environment."""
    if importlib.util.find_spec("cuequivariance_torch") or not PEER.exists():
        if importlib.util.find_spec("e3nn") is None:
            raise SystemExit("the peer e3nn is not installed. Fix: pip install 'scitoolkit[ops]'")
        return _in_this_interpreter()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"}
    command = [str(PEER), __file__]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    print(json.dumps(_in_this_interpreter()))
