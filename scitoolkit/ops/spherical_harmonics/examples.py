"""Examples of spherical harmonics for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.spherical_harmonics.spec import HarmonicsSpec


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield degrees and normalisations with fewer and more rows than lanes, and with none."""
    cases = [((0, 1, 2, 3), True, 21), ((2,), False, 130), ((0, 4), True, 3), ((1,), True, 0)]
    for degrees, normalize, rows in cases:
        text = HarmonicsSpec(degrees, "component", normalize).to_json()
        label = f"degrees {degrees}, normalize={normalize}, {rows} rows"
        vectors = numbers.normal(rows, 3)
        yield Example(label, text, (vectors,), lambda run, v, t=text: run(v, t))
