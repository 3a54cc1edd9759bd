"""Examples of attention among neighbours for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.neighbour_attention.spec import (
    LayerWeights,
    NeighbourAttentionSpec,
    Neighbours,
    Weights,
)

OPTIONS: tuple[dict, ...] = (
    {},
    {"smooth": False, "angular": False},
    {"normalize": False, "scale": 1.5},
    {"smooth": False, "gate_floor": 0.3},
    {"smooth": True, "factors": True},
    {"smooth": False, "factors": True, "num_layers": 0},
)


def weights_of(
    numbers: Numbers,
    spec: NeighbourAttentionSpec,
    *,
    num_types: int = 2,
    num_layers: int = 2,
    factors: bool = False,
) -> Weights:
    """Return random weights."""
    basis, hidden = spec.widths[-1], spec.attention_width
    shapes = ((basis, 3 * hidden), (3 * hidden,), (hidden, basis), (basis,), (basis,), (basis,))
    return Weights(
        [(numbers.normal(a, b), numbers.normal(b), None) for a, b in pairwise((1, *spec.widths))],
        numbers.normal(1 if factors else num_types**2, spec.widths[0]),
        numbers.normal(num_types**2, basis) if factors else None,
        1 + 0.1 * numbers.normal(num_types, 4).abs(),
        [LayerWeights(*(0.5 * numbers.normal(*s) for s in shapes)) for _ in range(num_layers)],
    )


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield each option, with an atom without neighbours and one with more than `sel`."""
    for options in OPTIONS:
        shared = {key: options[key] for key in options if key in ("factors", "num_layers")}
        others = {key: options[key] for key in options if key not in shared}
        spec = NeighbourAttentionSpec(
            **{
                "cutoff": 4.0,
                "cutoff_smooth": 1.0,
                "sel": 15,
                "widths": (4, 7, 14),
                "attention_width": 6,
                "scale": 0.4,
                "norm_epsilon": 1e-5,
                **others,
            }
        )
        weights = weights_of(numbers, spec, **shared)
        counts = torch.tensor([3, 0, 17, 1, 9], device=numbers.device)
        pointer = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        types = numbers.integers(2, 5)
        atoms = torch.tensor([2, 0, 1, 4], device=numbers.device)
        pair = numbers.integers(4, int(pointer[-1]))
        yield Example(
            ", ".join(f"{key}={value}" for key, value in options.items()) or "defaults",
            spec,
            (numbers.normal(int(pointer[-1]), 3), numbers.normal(4, spec.widths[-1], 4)),
            lambda run, vectors, ct, s=spec, w=weights, p=pointer, t=types, q=pair, a=atoms: run(
                s, w, Neighbours(p, t, q, vectors), a, ct
            ),
        )
