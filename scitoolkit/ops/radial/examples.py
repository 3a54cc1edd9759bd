"""Examples of radial bases for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.radial.spec import RadialSpec


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield each kind of basis with fewer and more rows than lanes, and with none."""
    for kind, rows in (("bessel", 21), ("gaussian", 3), ("chebyshev", 130), ("bessel", 0)):
        text = RadialSpec(kind, 6, 5.0, 6).to_json()
        distances = 3 * numbers.normal(rows).abs()
        yield Example(f"{kind}, {rows} rows", text, (distances,), lambda run, r, t=text: run(r, t))
