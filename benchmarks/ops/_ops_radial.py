"""The convolution with radial weights computed on the fly, compared with a layer that stores them.

`mace-large`, 10,000 edges, hidden width 64: time of each, and growth of the peak memory in a
training step of each, in separate processes.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import torch
from _measure import memory_mib

HIDDEN = 64


def _problem():
    os.environ["SCITOOLKIT_BENCH_COMPILE"] = "0"
    import tensor_product as products

    from scitoolkit.ops.tensor_product import Edges, radial_convolution, tensor_product_convolution

    problem = products.Problem("mace-large", "uvu")
    edges = Edges.build(problem.sender, problem.receiver, problem.nodes)
    x, y, _ = problem.packed
    hidden = torch.randn(problem.edges, HIDDEN)
    last = torch.randn(HIDDEN, problem.spec.weight_numel) / HIDDEN**0.5
    like = (hidden, last)
    cotangents = [*problem.packed_cotangents[:3], *(torch.randn_like(each) for each in like)]

    def fused(*inputs):
        return radial_convolution(problem.spec, *inputs, edges)

    def stored(x, y, hidden, last):
        return tensor_product_convolution(problem.spec, x, y, hidden @ last, edges)

    return products, {"fused": fused, "stored": stored}, [x, y, hidden, last], cotangents


def measure() -> dict:
    """Return CPU times and their ratios, and the memory per step."""
    torch.set_num_threads(1)
    products, functions, inputs, cotangents = _problem()
    a, b = (f(*inputs) for f in functions.values())
    difference = float((a - b).abs().max() / b.abs().max())
    if not difference < 1e-5:
        raise AssertionError(f"with and without stored weights differ by {difference}")
    figures: dict = {"difference": difference}
    for name, work in products.WORK.items():
        calls = {
            key: lambda f=function, w=work: w(f, inputs, cotangents)
            for key, function in functions.items()
        }
        times = products.alternate(calls)
        figures[name] = {f"{key}_ms": 1e3 * each for key, each in times.items()}
        figures[name]["speedup"] = times["stored"] / times["fused"]
    for key in functions:
        command = [sys.executable, __file__, key]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        figures[f"{key}_step_mib"] = float(done.stdout)
    return {"fused_radial": figures}


def _memory(key: str) -> float:
    """Return the growth of this process's peak memory by a step with double backward, MiB."""
    torch.set_num_threads(1)
    products, functions, inputs, cotangents = _problem()
    functions[key](*inputs)  # what is compiled and loaded is not the step's
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak
    before = memory_mib()
    products.double_backward(functions[key], inputs, cotangents)
    return memory_mib() - before


if __name__ == "__main__":
    print(_memory(sys.argv[1]))
