"""Rung of `make gpu`: tensor products, in one or all of the problems, against the GPU peers.

`python _gpu_products.py float32 [NAME]` times; `warm` first fills the cache of compiled kernels.
"""

from __future__ import annotations

import os
import sys

import torch
from _gpu_timing import SMALL, attempt, tell


def main(kind: str, names: list[str]) -> None:
    import _products_cuda as products
    from tensor_product import PASSES, UVU, WORK

    from scitoolkit.ops.tensor_product import channelwise_instructions

    dtype, warm = getattr(torch, kind), os.environ.get("SCITOOLKIT_BENCH_WARM") == "1"
    if SMALL:
        raise SystemExit("tensor products: the kernels need a GPU")
    rates = None if warm else products._rates(dtype)
    for name in names or UVU:
        irreps = UVU[name]

        def timed(name=name, irreps=irreps):
            made = channelwise_instructions(*irreps)
            problem = products.GpuProblem(name, "uvu", irreps, made, dtype)
            if warm:
                for call in WORK.values():
                    for function in (problem.ours, problem.atomic):
                        call(function, problem.inputs, problem.cotangents)
                return
            tell(problems={name: products.measure(problem, WORK, PASSES, rates)})

        attempt(name, timed)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
