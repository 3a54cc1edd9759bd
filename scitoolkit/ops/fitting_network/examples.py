"""Examples of the fitting network for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.fitting_network.spec import FittingSpec


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield networks with and without steps and shortcuts, for some atoms and for none."""
    for widths, atoms in (((20, 20), 13), ((12, 24), 100), ((20, 20), 0)):
        spec, sizes = FittingSpec(10, 4, widths), (40, *widths)
        layers = [
            (0.2 * numbers.normal(a, b), numbers.normal(b), None if a == 40 else numbers.normal(b))
            for a, b in pairwise(sizes)
        ]
        layers.append((numbers.normal(widths[-1], 1), numbers.normal(1), None))
        yield Example(
            f"widths {widths}, {atoms} atoms",
            spec,
            (numbers.normal(atoms, 10, 4),),
            lambda run, m, s=spec, parameters=layers: run(s, parameters)(m),
        )
