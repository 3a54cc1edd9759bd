"""A layer with tabulated radial weights compared with e3nn's layer with a radial network.

`mace-large`, 10,000 edges, float32, one thread. e3nn: network of the distance, 64 wide and three
deep as in MACE, tensor product of every edge, sum at receivers, gradients by autograd. Ours:
`tabulated_convolution` with a table of that network. Both compute the gradients of features, edge
attributes and distances, as forces need, and none of the network's weights. Gate: output and
gradients of the first edges agree with e3nn in float64. Making the table (once per set of weights)
is outside the timed calls and reported separately.
"""

from __future__ import annotations

import math
import os
import time

import torch

CUTOFF, SHORTEST, BASIS, HIDDEN = 5.0, 0.8, 8, 64
INTERVALS = 50  # doubled until values and slopes are as exact as float32
TABLE_ERROR = {"values": 3e-7, "slopes": 3e-7}
LIMIT = 3e-6
NAMES = ("out", "x", "y", "distances")


class RadialNetwork(torch.nn.Module):
    """e3nn's radial network of Bessel functions that fall off smoothly at the cutoff."""

    def __init__(self, outputs: int) -> None:
        from e3nn.nn import FullyConnectedNet

        super().__init__()
        self.network = FullyConnectedNet(
            [BASIS, HIDDEN, HIDDEN, HIDDEN, outputs], torch.nn.functional.silu
        )
        self.requires_grad_(False)

    def forward(self, r: torch.Tensor) -> torch.Tensor:
        u = (r / CUTOFF).clamp(max=1.0)
        n = torch.arange(1, BASIS + 1, dtype=r.dtype)
        waves = math.sqrt(2 / CUTOFF) * torch.sinc(n * u[:, None]) * n * math.pi / CUTOFF
        fade = 1 - 28 * u**6 + 48 * u**7 - 21 * u**8
        return self.network(waves * fade[:, None])


def table_of(network: RadialNetwork):
    """Return grid, coefficients in float32 and CPU seconds."""
    from scitoolkit.ops.interpolation import EquidistantGrid, Placement, piecewise_polynomial

    begin, number = time.process_time(), INTERVALS
    while True:
        grid = EquidistantGrid(CUTOFF, number)
        # Below the first node in use distances do not occur, and 1/r of the basis is steep.
        nodes = grid.nodes().clamp(min=1e-3)
        exact = grid.coefficients(network(nodes), torch.float64)
        middle = (nodes[1:] + nodes[:-1]) / 2
        middle = middle[middle > SHORTEST].requires_grad_()
        want = network(middle)
        got = piecewise_polynomial(exact, Placement.build(grid, middle))
        probe = torch.ones_like(want)
        (slope,) = torch.autograd.grad(want, middle, probe)
        (found,) = torch.autograd.grad(got, middle, probe)
        error = {
            "values": float((got - want).abs().max() / want.abs().max()),
            "slopes": float((found - slope).abs().max() / slope.abs().max()),
        }
        if all(error[key] < TABLE_ERROR[key] for key in error):
            return grid, exact.float(), time.process_time() - begin
        number *= 2


def measure() -> dict:
    """Return the CPU times of both, their ratio and the errors."""
    os.environ["SCITOOLKIT_BENCH_COMPILE"] = "0"
    import tensor_product as products

    from scitoolkit.ops.tensor_product import Edges, tabulated_convolution

    torch.set_num_threads(1)
    problem = products.Problem("mace-large", "uvu")
    spec, rows = problem.spec, 1000
    torch.manual_seed(0)
    exact = RadialNetwork(spec.weight_numel).double()
    plain = RadialNetwork(spec.weight_numel)
    plain.load_state_dict(exact.state_dict())
    grid, table, seconds = table_of(exact)
    generator = torch.Generator().manual_seed(1)
    distances = SHORTEST + (CUTOFF - SHORTEST) * torch.rand(problem.edges, generator=generator)
    product = problem.peers["e3nn"][0]

    def ours(edges):
        return lambda x, y, r: tabulated_convolution(spec, x, y, r, grid, table, edges)

    def theirs(x, y, r):
        return product(x, y, plain(r))

    def in_float64(x, y, r):
        message = problem.exact(x[problem.sender[:rows]], y, exact(r))
        zeros = message.new_zeros(problem.nodes, message.shape[1])
        return zeros.index_add(0, problem.receiver[:rows], message)

    def outputs(function, inputs, probe):
        leaves = [each.detach().requires_grad_() for each in inputs]
        out = function(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, probe)]

    (x, y, _), probe = problem.inputs, problem.cotangents[0]
    packed, packed_probe = problem.packed[0], problem.packed_cotangents[0]
    some = Edges.build(problem.sender[:rows], problem.receiver[:rows], problem.nodes)
    got = outputs(ours(some), (packed, y[:rows], distances[:rows]), packed_probe)
    want = outputs(
        in_float64, (x.double(), y[:rows].double(), distances[:rows].double()), probe.double()
    )
    got[0], got[1] = problem.unpack(got[0], "out"), problem.unpack(got[1], "in1")
    errors = {
        name: float((a - b).abs().max() / b.abs().max())
        for name, a, b in zip(NAMES, got, want, strict=True)
    }
    if not max(errors.values()) < LIMIT:
        raise AssertionError(f"the streamed layer differs from e3nn: {errors}")
    edges = Edges.build(problem.sender, problem.receiver, problem.nodes)
    calls = {
        "ours": lambda: outputs(ours(edges), (packed, y, distances), packed_probe),
        "e3nn": lambda: outputs(theirs, (x, y, distances), probe),
    }
    times = products.alternate(calls)
    return {
        "streamed_layer_speedup": times["e3nn"] / times["ours"],
        "streamed_layer": {
            "edges": problem.edges,
            "intervals": grid.num_intervals,
            "table_seconds": seconds,
            "errors": errors,
            **{f"{name}_ms": 1e3 * each for name, each in times.items()},
        },
    }
