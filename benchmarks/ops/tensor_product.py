"""Fused gather + tensor product + scatter against e3nn and cuEquivariance on one CPU core.

Ours and the peers run alternately in one process on the same input, one thread, float32, process
CPU time; the figure is the ratio of medians to the fastest peer. Before any timing, outputs and
all first and second derivatives are compared with e3nn in float64. Building `Edges` (once per
neighbour list) is outside the timed calls and reported separately. Cotangents are given, so that
only the operators are timed. torch.compile of e3nn takes a quarter of a minute per problem:
SCITOOLKIT_BENCH_COMPILE=0 skips it.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from _measure import machine
from _places import BENCHMARKS, PEERS, ROOT

PEER = PEERS / "e3nn" / "bin" / "python"
EDGES, NODES = 10_000, 500
UVW_EDGES = 2_000  # weights per edge are 10^4 floats: with gradients 10,000 edges exceed memory

UVU = {
    "nequip-water": ("32x0o+32x0e+32x1o+32x1e", "0e+1o", "32x0o+32x0e+32x1o+32x1e"),
    "mace-64-L2": ("64x0e+64x1o", "0e+1o+2e", "64x0e+64x1o+64x2e"),
    "mace-medium": ("128x0e+128x1o", "0e+1o+2e+3o", "128x0e+128x1o+128x2e"),
    "mace-large": ("128x0e+128x1o+128x2e", "0e+1o+2e+3o", "128x0e+128x1o+128x2e+128x3o"),
    "revmd17-aspirin": ("64x0o+64x0e+64x1o+64x1e", "0e+1o", "64x0o+64x0e+64x1o+64x1e"),
    "nequip-lips": (
        "32x0o+32x0e+32x1o+32x1e+32x2o+32x2e",
        "0e+1o+2e",
        "32x0o+32x0e+32x1o+32x1e+32x2o+32x2e",
    ),
    "sevennet-first": ("128x0e", "0e+1e+2e+3e", "128x0e+64x1e+32x2e+32x3e"),
}
UVW = {
    "diffdock-L1": ("10x1o+10x1e+48x0e+48x0o", "0e+1o", "10x1o+10x1e+48x0e+48x0o"),
    "e3tools-conv": ("64x0e+16x1o", "0e+1o", "80x0e+16x1o"),
}
# Single instructions of 128 channels, in1 x in2 -> out: how far from the machine's limits.
ROOFLINE = {
    f"roofline-{a}-{b}-{c}": (f"128x{a}", b, f"128x{c}")
    for a, b, c in (
        ("1e", "1e", "1e"),
        ("2e", "1e", "2e"),
        ("3e", "3e", "3e"),
        ("5e", "5e", "3e"),
        ("5e", "3e", "5e"),
        ("6e", "3e", "6e"),
        ("7e", "4e", "7e"),
        ("7e", "7e", "7e"),
    )
}
TABLES = {"uvu": UVU, "uvw": UVW, "roofline": ROOFLINE}
ROOFLINE_EDGES = 2_000  # e3nn's intermediates of 7 x 7 -> 7 take 20 kB per edge and step
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

        in1, in2, wanted = TABLES[mode][name]
        self.edges = {"uvu": EDGES, "uvw": UVW_EDGES, "roofline": ROOFLINE_EDGES}[mode]
        nodes = NODES * self.edges // EDGES
        make = _fully_connected if mode == "uvw" else channelwise_instructions
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
        # Cotangents of the output and of the three gradients, in e3nn's layout and in ours.
        self.cotangents = [
            torch.randn(shape, generator=generator) for shape in ((nodes, spec.dim_out), *shapes)
        ]
        probe, dx, *rest = self.cotangents
        self.packed_cotangents = [
            change_layout(probe, spec.out, "ir_mul"),
            change_layout(dx, spec.in1, "ir_mul"),
            *rest,
        ]
        self.unpack = lambda rows, side: change_layout(rows, getattr(spec, side), "mul_ir")
        self.ours = lambda x, y, w: tensor_product_convolution(spec, x, y, w, graph, backend="cpu")
        self.peers = {"e3nn": (self._unfused(module), self.inputs, self.cotangents)}
        if mode != "roofline" and os.environ.get("SCITOOLKIT_BENCH_COMPILE") != "0":
            self._add_compiled(arguments, options)
        if mode != "roofline" and importlib.util.find_spec("cuequivariance_torch"):
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
        self.peers["e3nn-compile"] = (self._unfused(module), self.inputs, self.cotangents)

    def _add_cuequivariance(self, in1, in2, wanted, mode) -> None:
        import cuequivariance as cue
        import cuequivariance_torch as cuet

        kind = cuet.ChannelWiseTensorProduct if mode == "uvu" else cuet.FullyConnectedTensorProduct
        irreps = [cue.Irreps("O3", each) for each in (in1, in2, wanted)]
        module = kind(*irreps, layout=cue.ir_mul, shared_weights=False, internal_weights=False)
        if module.weight_numel == self.spec.weight_numel:
            packed = (self._unfused(module), self.packed, self.packed_cotangents)
            self.peers["cuequivariance"] = packed


def forward(function, inputs, cotangents):
    with torch.no_grad():
        return function(*inputs)


def _leaves(tensors):
    return [each.detach().requires_grad_() for each in tensors]


def forward_backward(function, inputs, cotangents):
    """Return the gradients for a given output cotangent, so that only the operator is timed."""
    leaves = _leaves(inputs)
    return torch.autograd.grad(function(*leaves), leaves, cotangents[0])


def double_backward(function, inputs, cotangents):
    """Operations of a force loss: forward, differentiable gradients, and their gradients."""
    *leaves, probe = _leaves([*inputs, cotangents[0]])
    grads = torch.autograd.grad(function(*leaves), leaves, probe, create_graph=True)
    return torch.autograd.grad(grads, [*leaves, probe], cotangents[1:])


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

    def cut(x, y, w):
        return [x, y[:rows], w[:rows]]

    def cut_all(inputs, cotangents):
        return cut(*inputs), [cotangents[0], *cut(*cotangents[1:])]

    def doubled(lists):
        return [[each.double() for each in tensors] for tensors in lists]

    errors, sides = {}, ("in1", None, None, "out")
    for name, work in WORK.items():
        got = work(ours, *cut_all(problem.packed, problem.packed_cotangents))
        want = work(exact, *doubled(cut_all(problem.inputs, problem.cotangents)))
        if name == "forward":
            pairs = [(problem.unpack(got, "out"), want)]
        else:
            pairs = [
                (problem.unpack(a, side) if side else a, b)
                for a, b, side in zip(got, want, sides, strict=False)
            ]
        errors[name] = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
        if not errors[name] <= LIMITS[name]:
            raise SystemExit(f"{name}: error {errors[name]:.2e} above {LIMITS[name]:.0e}")
    return errors


def cpu_seconds(call) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def alternate(calls: dict, seconds: float = 2.5) -> dict[str, float]:
    """Return the median CPU time of each call in alternating rounds; ours runs more often."""
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


# How often a kernel reads or writes per-edge weights, and multiplies of the forward it contains.
PASSES = {"forward": ((1, 1),), "backward": ((1, 1), (2, 2)), "double": ((1, 1), (2, 2), (3, 5))}


def floor_seconds(problem: Problem, rates: tuple[float, float], work: str = "forward") -> float:
    """Return a lower bound of the time of `work`: per kernel the maximum of arithmetic and traffic.

    The backward multiplies twice what the forward does, the double backward five times; they read
    the weights (and their cotangents) and write their gradients once.
    """
    spec, flops = problem.spec, 0
    for path in spec.paths:
        a, b, c = spec.in1[path.in1], spec.in2[path.in2], spec.out[path.out]
        nonzero = int((abs(spec.coefficients(path)) > 1e-9).sum())
        if path.mode != "uvw":
            flops += a.mul * b.mul * (2 * nonzero + c.components)
        else:
            flops += a.mul * b.mul * (2 * nonzero + 2 * c.mul * c.components)
    rows = problem.edges * (4 * spec.dim_in2 + 24) + 4 * problem.nodes * (
        spec.dim_in1 + spec.dim_out
    )
    weights = 4 * problem.edges * spec.weight_numel
    return sum(
        max(times * flops * problem.edges / rates[0], (touched * weights + rows) / rates[1])
        for touched, times in PASSES[work]
    )


def thread_scaling(problem: Problem) -> float:
    """Return wall time of one thread over two, best of several, forward and backward."""
    times = {}
    for _ in range(8):
        for threads in (1, 2):
            torch.set_num_threads(threads)
            begin = time.perf_counter()
            forward_backward(problem.ours, problem.packed, problem.packed_cotangents)
            elapsed = time.perf_counter() - begin
            times[threads] = min(times.get(threads, elapsed), elapsed)
    torch.set_num_threads(1)
    return times[1] / times[2]


def compile_seconds(problem: Problem) -> dict[str, float]:
    """Return CPU seconds of generating and compiling all kernels, and of taking them cached."""
    code = (
        "import resource, sys, torch\n"
        "from scitoolkit.ops.tensor_product import operators\n"
        "def used():\n"
        "    each = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))\n"
        "    return sum(t.ru_utime + t.ru_stime for t in each)\n"
        "text, begin = sys.argv[1], used()\n"
        "for name in ('forward', 'backward', 'double_backward'):\n"
        "    operators.kernel(text, name, torch.float32)\n"
        "print(used() - begin)"
    )
    figures = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "SCITOOLKIT_CACHE": cache}
        for when in ("first", "cached"):
            command = [sys.executable, "-c", code, problem.spec.to_json()]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            figures[f"compile_seconds_{when}"] = float(done.stdout)
    return figures


def measure(name: str, mode: str, rates: tuple[float, float]) -> dict:
    problem = Problem(name, mode)
    figures = {"edges": problem.edges, "errors": check(problem), "graph_ms": problem.graph_ms}
    for work_name, work in WORK.items():
        calls = {"ours": lambda w=work: w(problem.ours, problem.packed, problem.packed_cotangents)}
        for peer, arguments in problem.peers.items():
            if (work_name, peer) != ("double", "e3nn-compile"):  # torch.compile cannot do it
                calls[peer] = lambda w=work, a=arguments: w(*a)
        times = alternate(calls)
        ours = times.pop("ours")
        figures[work_name] = {
            "ours_ms": 1e3 * ours,
            **{f"{peer}_ms": 1e3 * each for peer, each in times.items()},
            "speedup": min(times.values()) / ours,
        }
        gc.collect()
    for work_name in WORK:
        floor = 1e3 * floor_seconds(problem, rates, work_name)
        timed = figures[work_name]
        timed["floor_ms"] = floor
        timed["speedup_at_floor"] = timed["speedup"] * timed["ours_ms"] / floor
    figures["floor_share"] = figures["forward"]["floor_ms"] / figures["forward"]["ours_ms"]
    if name == "mace-large":
        figures["thread_scaling_2"] = thread_scaling(problem)
        figures |= compile_seconds(problem)
    print(name, json.dumps(figures), file=sys.stderr, flush=True)
    return figures


def _in_this_interpreter() -> dict:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    only = os.environ.get("SCITOOLKIT_BENCH_PROBLEMS", "").split(",")
    chosen = [
        (name, mode)
        for mode, table in TABLES.items()
        for name in table
        if only == [""] or name in only
    ]
    rates = machine_rates()
    problems = {name: measure(name, mode, rates) for name, mode in chosen}
    figures = {"sgemm_gflops": rates[0] / 1e9, "copy_gb_s": rates[1] / 1e9}
    uvu = [problems[name] for name in UVU if name in problems]
    if uvu:
        figures["floor_share_min"] = min(each["floor_share"] for each in uvu)
    for work in WORK:
        if uvu:
            figures[f"{work}_speedup_at_floor_min"] = min(
                each[work]["speedup_at_floor"] for each in uvu
            )
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
        for key in ("compile_seconds_first", "compile_seconds_cached"):
            figures[f"{key}_mace_large"] = problems["mace-large"][key]
    return {**figures, "problems": problems}


def _where_the_peers_are() -> dict:
    if importlib.util.find_spec("cuequivariance_torch") or not PEER.exists():
        if importlib.util.find_spec("e3nn") is None:
            raise SystemExit("the peer e3nn is not installed. Fix: pip install e3nn")
        return _in_this_interpreter()
    path = f"{ROOT}{os.pathsep}{BENCHMARKS}"
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "2"}
    command = [str(PEER), __file__]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def run() -> dict:
    """Return the figures, including those of related kernels (`_ops_*.py`)."""
    figures = _where_the_peers_are()
    for path in sorted(Path(__file__).parent.glob("_ops_*.py")):
        figures |= importlib.import_module(path.stem).measure()
    return {"machine": machine(), **figures}


def run_cuda() -> dict:
    """Return the figures on a GPU, against the GPU peers that are installed here."""
    import _products_cuda

    from scitoolkit.ops.tensor_product import channelwise_instructions

    make = {mode: channelwise_instructions for mode in TABLES} | {"uvw": _fully_connected}
    return {"machine": machine(), **_products_cuda.run(TABLES, make, WORK, PASSES)}


if __name__ == "__main__":
    print(json.dumps(_in_this_interpreter()))
