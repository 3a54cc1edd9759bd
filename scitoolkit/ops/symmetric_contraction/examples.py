"""Examples of the symmetric contraction for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.symmetric_contraction.elements import Elements
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield full and partial vectors of channels, an element without nodes, and no nodes."""
    spec = ContractionSpec.build("0e + 1o", "0e + 1o", 3)
    text = spec.text
    for nodes, channels in ((9, 8), (4, 5), (0, 8)):
        species = numbers.integers(2, nodes)
        x = numbers.normal(nodes, spec.dim_in, channels)
        weight = numbers.normal(3, spec.num_paths, channels)
        yield Example(
            f"{nodes} nodes, {channels} channels",
            text,
            (x, weight),
            lambda run, x, w, s=species: run(x, w, Elements.build(s, 3), spec),
        )
