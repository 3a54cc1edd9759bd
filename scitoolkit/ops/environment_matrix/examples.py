"""Examples of the environment matrix for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.environment_matrix.environment import Environment
from scitoolkit.ops.environment_matrix.operators import flat_weights
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield two types with one network per type, and with one per pair of types."""
    for type_one_side in (True, False):
        spec = EnvironmentSpec(6.0, 0.5, (5, 6), (4, 8, 8), type_one_side)
        counts = numbers.integers(6, 4, 2)
        segments = torch.cat([counts.new_zeros(1), counts.flatten().cumsum(0)])
        vectors = numbers.normal(int(segments[-1]), 3) + 1
        mean, deviation = 0.1 * numbers.normal(2, 4), 1 + 0.1 * numbers.normal(2, 4).abs()
        atoms, types = (
            torch.tensor(chosen, device=numbers.device) for chosen in ([2, 0, 1], [0, 1, 0, 1])
        )
        graph = (atoms, segments, types, vectors)
        layers = [
            (numbers.normal(spec.num_networks, a, b), numbers.normal(spec.num_networks, b))
            for a, b in ((1, 4), (4, 8), (8, 8))
        ]
        yield Example(
            f"type_one_side={type_one_side}",
            spec,
            (flat_weights(layers),),
            lambda run, w, s=spec, g=graph, m=mean, d=deviation: run(
                w,
                Environment(s, *g, m, d, training=True),  # type: ignore[call-arg, misc]
            ),
        )
