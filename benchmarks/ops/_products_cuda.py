"""The problems of `tensor_product` on a GPU, compared with OpenEquivariance and cuEquivariance.

    pip install openequivariance cuequivariance-torch cuequivariance-ops-torch-cu12
    python benchmarks/run.py tensor_product --device cuda --json

All run alternately in one process on one symmetric graph, in float32 and float64, through autograd
with given cotangents. CUDA events enclose each call, and the second-level cache is overwritten
before it. The figure is the ratio of medians to the fastest installed peer. Our kernels run twice,
deterministic and with atomics (`deterministic=False`). Before any timing both are compared with the
reference in float64 on part of the edges, and the outputs of the peers with ours: a peer that fails
or differs is left out and named.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import statistics
import sys
from collections.abc import Callable

import torch

DEVICE = "cuda"
EDGES = {"uvu": 50_000, "uvw": 50_000, "roofline": 200_000}
DEGREE = 20
ROUNDS, WARM = 20, 3
CHECKED = 1_000  # edges of the comparison with the reference
LIMITS = {
    torch.float32: {"forward": 1e-6, "backward": 1e-6, "double": 1e-5},
    torch.float64: {"forward": 1e-13, "backward": 1e-13, "double": 1e-12},
}
BUFFERS = 8  # arrays as large as the weights that a double backward of ours or a peer may hold
CACHE_BYTES = 256 << 20


def _symmetric_graph(num_edges: int) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Random pairs in both directions, sorted by receiver and then sender."""
    nodes = max(2, num_edges // DEGREE)
    pairs = torch.randint(0, nodes, (2, num_edges // 2), generator=torch.manual_seed(0))
    sender, receiver = torch.cat([pairs, pairs.flip(0)], dim=1)
    order = torch.argsort(receiver * nodes + sender, stable=True)
    return sender[order].to(DEVICE), receiver[order].to(DEVICE), nodes


class GpuProblem:
    """One problem on the GPU: inputs in both layouts, ours and the installed peers."""

    def __init__(self, name: str, mode: str, irreps: tuple, instructions: tuple, dtype) -> None:
        from scitoolkit.ops.tensor_product import Edges, TensorProductSpec, change_layout
        from scitoolkit.ops.tensor_product import tensor_product_convolution as convolution

        in1, in2, wanted = irreps
        out, listed = instructions
        self.name, self.dtype = name, dtype
        self.spec = spec = TensorProductSpec.build(in1, in2, out, listed)
        free = torch.cuda.mem_get_info()[0] // (BUFFERS * dtype.itemsize * spec.weight_numel)
        self.sender, self.receiver, self.nodes = _symmetric_graph(min(EDGES[mode], free) // 2 * 2)
        self.num_edges = self.sender.shape[0]
        shapes = (
            (self.nodes, spec.dim_in1),
            (self.num_edges, spec.dim_in2),
            (self.num_edges, spec.weight_numel),
        )
        self.inputs = [torch.randn(shape, dtype=dtype, device=DEVICE) for shape in shapes]
        self.cotangents = [
            torch.randn(shape, dtype=dtype, device=DEVICE)
            for shape in ((self.nodes, spec.dim_out), *shapes)
        ]
        edges = Edges.build(self.sender, self.receiver, self.nodes)
        self.ours, self.atomic = (
            functools.partial(
                convolution, spec, edges=edges, backend="triton", deterministic=deterministic
            )
            for deterministic in (True, False)
        )
        self.to_ours = lambda rows, side: change_layout(rows, getattr(spec, side), "ir_mul")
        self.to_e3nn = lambda rows, side: change_layout(rows, getattr(spec, side), "mul_ir")
        self.peers: dict[str, tuple[Callable, list, list]] = {}
        self.failures: dict[str, str] = {}
        adders = {
            "openequivariance": lambda: self._add_openequivariance(in1, in2, out, listed),
            "cuequivariance": lambda: self._add_cuequivariance(in1, in2, wanted, mode),
        }
        modules = {"openequivariance": "openequivariance", "cuequivariance": "cuequivariance_torch"}
        for peer, add in adders.items():
            if importlib.util.find_spec(modules[peer]) is None:
                continue
            try:
                add()
            except Exception as failure:  # of a release that does not fit, for one
                self.failures[peer] = f"{type(failure).__name__}: {failure}"[:200]

    def _add_openequivariance(self, in1, in2, out, instructions) -> None:
        import numpy as np
        import openequivariance as oeq

        kind = {torch.float32: np.float32, torch.float64: np.float64}[self.dtype]
        problem = oeq.TPProblem(
            *(oeq.Irreps(str(each)) for each in (in1, in2, out)),
            instructions,
            shared_weights=False,
            internal_weights=False,
            irrep_dtype=kind,
            weight_dtype=kind,
        )
        x, y, w = self.inputs
        probe, dx, *rest = self.cotangents
        cotangents = [self.to_e3nn(probe, "out"), self.to_e3nn(dx, "in1"), *rest]
        transpose = torch.argsort(self.sender, stable=True)
        for name, deterministic in (
            ("openequivariance", False),
            ("openequivariance-deterministic", True),
        ):
            module = oeq.TensorProductConv(problem, deterministic=deterministic)
            order = (self.receiver, self.sender, *([transpose] if deterministic else []))
            weights = module.reorder_weights_from_e3nn(w, has_batch_dim=True)
            inputs = [self.to_e3nn(x, "in1"), y, weights]
            self.peers[name] = (lambda *a, m=module, o=order: m(*a, *o), inputs, cotangents)

    def _add_cuequivariance(self, in1, in2, wanted, mode) -> None:
        import cuequivariance as cue
        import cuequivariance_torch as cuet
        from cuequivariance.group_theory.experimental.e3nn import O3_e3nn

        # e3nn's order of irreps, and with it of outputs and weights.
        irreps = [cue.Irreps(O3_e3nn, each) for each in (in1, in2, wanted)]
        options = {
            "layout": cue.ir_mul,
            "shared_weights": False,
            "internal_weights": False,
            "device": DEVICE,
            "dtype": self.dtype,
        }
        if mode == "uvw":
            module = cuet.FullyConnectedTensorProduct(*irreps, **options)
        else:
            filtered = [each.ir for each in irreps[2]]
            module = cuet.ChannelWiseTensorProduct(*irreps[:2], filtered, **options)
        if module.weight_numel != self.spec.weight_numel:
            return
        if module.method == "uniform_1d":  # with gather and scatter in the kernel

            def convolution(x, y, w):
                return module(
                    x,
                    y,
                    w,
                    indices_1=self.sender,
                    indices_out=self.receiver,
                    size_out=self.nodes,
                )
        else:

            def convolution(x, y, w):
                message = module(x[self.sender], y, w)
                zeros = message.new_zeros(self.nodes, message.shape[1])
                return zeros.index_add(0, self.receiver, message)

        self.peers["cuequivariance"] = (convolution, self.inputs, self.cotangents)

    def errors(self, work: dict[str, Callable]) -> dict[str, float]:
        """Compare with the reference in float64 on some edges; raise when an error is too large."""
        from scitoolkit.ops.tensor_product import Edges, tensor_product_convolution

        rows = min(CHECKED, self.num_edges)
        edges = Edges.build(self.sender[:rows], self.receiver[:rows], self.nodes)

        def cut(tensors, dtype):
            return [
                (each[:rows] if each.shape[0] == self.num_edges else each).to(dtype)
                for each in tensors
            ]

        def results(call, dtype, **options):
            return call(
                lambda *a: tensor_product_convolution(self.spec, *a, edges, **options),
                cut(self.inputs, dtype),
                cut(self.cotangents, dtype),
            )

        found = {}
        for name, call in work.items():
            want = results(call, torch.float64, backend="reference")
            for label, deterministic in ((name, True), (f"{name}_atomic", False)):
                got = results(call, self.dtype, backend="triton", deterministic=deterministic)
                pairs = [(got, want)] if name == "forward" else zip(got, want, strict=True)
                error = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
                if not error <= LIMITS[self.dtype][name]:
                    raise SystemExit(f"{self.name} {label}: error {error:.2e} is too large")
                found[label] = error
        return found

    def leave_out_differing_peers(self) -> dict[str, str]:
        """Drop each peer that fails or computes something else than ours; return why."""
        why: dict[str, str] = dict(self.failures)
        with torch.no_grad():
            want = self.ours(*self.inputs)
            for name, (function, inputs, _) in list(self.peers.items()):
                try:
                    got = function(*inputs)
                    got = self.to_ours(got, "out") if name.startswith("openequi") else got
                    error = float((got - want).abs().max() / want.abs().max())
                except Exception as failure:
                    why[name] = f"{type(failure).__name__}: {failure}"[:200]
                else:
                    if not error <= 1e-4:
                        why[name] = f"differs from ours by {error:.1e}"
                if name in why:
                    del self.peers[name]
        return why


def _alternate(calls: dict[str, Callable]) -> dict[str, float]:
    """Return the median seconds of each call by CUDA events, in alternating rounds."""
    cache = torch.empty(CACHE_BYTES, dtype=torch.uint8, device=DEVICE)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(WARM + ROUNDS):
        for name, call in calls.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            cache.zero_()
            begin.record()
            call()
            end.record()
            end.synchronize()
            if number >= WARM:
                times[name].append(1e-3 * begin.elapsed_time(end))
    return {name: statistics.median(each) for name, each in times.items()}


def _rates(dtype) -> dict[str, float]:
    """Return flop/s of a matrix product without TF32, and bytes/s of a copy."""
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.randn(8192, 8192, dtype=dtype, device=DEVICE) for _ in range(2))
    source = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    seconds = _alternate({"product": lambda: a @ b, "copy": lambda: target.copy_(source)})
    return {"flops": 2 * 8192**3 / seconds["product"], "bytes": 2 * (1 << 30) / seconds["copy"]}


def _traffic(problem: GpuProblem, touched: int) -> int:
    """Return the minimum memory traffic: weights as often as given, rows and indices once."""
    spec, edges, nodes = problem.spec, problem.num_edges, problem.nodes
    numbers = touched * edges * spec.weight_numel + edges * spec.dim_in2
    numbers += nodes * (spec.dim_in1 + spec.dim_out)
    return problem.dtype.itemsize * numbers + 24 * edges


def measure(problem: GpuProblem, work: dict[str, Callable], passes: dict, rates: dict) -> dict:
    """Return times, ratios and bandwidth of one problem."""
    figures = {"edges": problem.num_edges, "errors": problem.errors(work)}
    left_out = problem.leave_out_differing_peers()
    if left_out:
        figures["left_out"] = left_out
    contestants = {
        "ours": (problem.ours, problem.inputs, problem.cotangents),
        "atomic": (problem.atomic, problem.inputs, problem.cotangents),
        **problem.peers,
    }
    for name, call in work.items():
        times = _alternate(
            {each: functools.partial(call, *given) for each, given in contestants.items()}
        )
        ours, atomic = times.pop("ours"), times.pop("atomic")
        moved = sum(_traffic(problem, touched) for touched, _ in passes[name])
        figures[name] = {
            "ours_ms": 1e3 * ours,
            "atomic_ms": 1e3 * atomic,
            **{f"{peer}_ms": 1e3 * each for peer, each in times.items()},
            "gb_per_second": moved / ours / 1e9,
            "share_of_copy": moved / ours / rates["bytes"],
        }
        if times:
            fastest = min(times.values())
            figures[name] |= {"speedup": fastest / ours, "atomic_speedup": fastest / atomic}
    return figures


def run(tables: dict, make: dict[str, Callable], work: dict[str, Callable], passes: dict) -> dict:
    """Return the figures of all problems in both precisions.

    Args:
        tables: mode -> problem -> irreps.
        make: mode -> function of the irreps that returns the irreps out and the instructions.
        work: the computations that are timed.
        passes: how often each kernel of a computation touches the weights.
    """
    figures: dict = {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    for dtype in (torch.float32, torch.float64):
        kind = str(dtype).removeprefix("torch.")
        rates = _rates(dtype)
        found = {}
        for mode, table in tables.items():
            for name, irreps in table.items():
                problem = GpuProblem(name, mode, irreps, make[mode](*irreps), dtype)
                found[name] = measure(problem, work, passes, rates)
                print(name, kind, json.dumps(found[name]), file=sys.stderr, flush=True)
                del problem
                torch.cuda.empty_cache()
        figures[kind] = {
            "matmul_tflops": rates["flops"] / 1e12,
            "copy_gb_s": rates["bytes"] / 1e9,
            **_summary(found, work),
            "problems": found,
        }
    return figures


def _summary(found: dict, work: dict) -> dict[str, float]:
    summary = {}
    for name in work:
        for kind in ("speedup", "atomic_speedup"):
            ratios = [each[name][kind] for each in found.values() if kind in each[name]]
            if ratios:
                summary[f"{name}_{kind}_min"] = min(ratios)
                summary[f"{name}_{kind}_mean"] = math.exp(statistics.mean(map(math.log, ratios)))
    return summary
