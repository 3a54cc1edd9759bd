"""Spherical harmonics with second derivatives compared with e3nn, in the caller's process.

The operations of a force loss are timed: values, their differentiable gradient, and its gradient.
Ours and e3nn's compiled module alternate on the same float32 vectors, one thread, CPU time.
"""

from __future__ import annotations

import torch
from _measure import alternate, medians

EDGES, DEGREES, ROUNDS = 10_000, (0, 1, 2, 3), 40
LIMIT = 1e-5  # relative, against e3nn in float64


def _work(function, vectors, cotangent, direction):
    values = function(vectors)
    (gradient,) = torch.autograd.grad(values, vectors, cotangent, create_graph=True)
    return values, gradient, *torch.autograd.grad(gradient, (vectors, cotangent), direction)


def _inputs(dtype):
    generator = torch.Generator().manual_seed(0)
    size = sum(2 * degree + 1 for degree in DEGREES)
    shapes = (EDGES, 3), (EDGES, size), (EDGES, 3)
    made = [torch.randn(each, generator=generator).to(dtype) for each in shapes]
    return [made[0].requires_grad_(), made[1].requires_grad_(), made[2]]


def measure() -> dict:
    """Return the speed-up over e3nn and the times behind it; raise when the values differ."""
    from e3nn import o3

    from scitoolkit.ops.spherical_harmonics import spherical_harmonics

    peer = o3.SphericalHarmonics(list(DEGREES), normalize=True, normalization="component")

    def ours(vectors):
        return spherical_harmonics(list(DEGREES), vectors, True, "component", backend="cpu")

    inputs = _inputs(torch.float32)
    got, want = _work(ours, *inputs), _work(peer, *_inputs(torch.float64))
    error = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(got, want, strict=True))
    if not error <= LIMIT:
        raise SystemExit(f"spherical harmonics: error {error:.1e} above {LIMIT:.0e}")
    calls = {"ours": lambda: _work(ours, *inputs), "e3nn": lambda: _work(peer, *inputs)}
    alternate(calls, 3)
    seconds = medians(alternate(calls, ROUNDS))
    return {
        "spherical_harmonics_speedup": seconds["e3nn"] / seconds["ours"],
        "spherical_harmonics": {
            "edges": EDGES,
            "degrees": DEGREES,
            "error": error,
            **{f"{name}_ms": 1e3 * each for name, each in seconds.items()},
        },
    }
