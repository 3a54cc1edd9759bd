"""Examples of the tensor product and its convolutions for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.interpolation import EquidistantGrid
from scitoolkit.ops.tensor_product.edges import Edges
from scitoolkit.ops.tensor_product.spec import TensorProductSpec

UVW = [(0, 0, 0, "uvw", True), (1, 1, 0, "uvw", True), (0, 1, 1, "uvw", True)]
UUU = [(0, 0, 0, "uuu", True), (1, 1, 0, "uuu", True), (0, 1, 1, "uuu", False)]


def _specs() -> Iterator[tuple[str, TensorProductSpec]]:
    yield "uvu", TensorProductSpec.channelwise("16x0e + 16x1o", "0e + 1o", "0e + 1o + 2e")
    yield "uvu, odd", TensorProductSpec.channelwise("5x0e + 3x1o", "0e + 1o", "0e + 1o")
    for shared in (False, True):
        yield (
            f"uvw, shared={shared}",
            TensorProductSpec.build(
                "4x0e + 4x1o", "0e + 1o", "8x0e + 8x1o", UVW, shared_weights=shared
            ),
        )
    yield (
        "uuu",
        TensorProductSpec.build(
            "8x0e + 8x1o", "8x0e + 8x1o", "8x0e + 8x1o", UUU, shared_weights=False
        ),
    )


def _edges(numbers: Numbers, num_edges: int) -> Edges:
    sender, receiver = numbers.integers(7, 2, num_edges)
    return Edges.build(sender, receiver, 8)  # the last node has no edges


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield each mode, shared weights, odd numbers of channels, and a graph without edges."""
    for label, spec in _specs():
        for num_edges in (30, 0) if label == "uvu" else (30,):
            edges, text = _edges(numbers, num_edges), spec.text
            rows = () if spec.shared_weights else (num_edges,)
            tensors = (
                numbers.normal(8, spec.dim_in1),
                numbers.normal(num_edges, spec.dim_in2),
                numbers.normal(*rows, spec.weight_numel),
            )
            yield Example(
                f"{label}, {num_edges} edges",
                text,
                tensors,
                lambda run, x, y, w, e=edges, s=spec: run(x, y, w, e, s, False, True),
                (False, True),
            )


def radial_examples(numbers: Numbers) -> Iterator[Example]:
    """Yield convolutions on graphs with and without edges."""
    spec = TensorProductSpec.channelwise("8x0e + 8x1o", "0e + 1o", "0e + 1o")
    for num_edges in (30, 0):
        edges = _edges(numbers, num_edges)
        tensors = (
            numbers.normal(8, spec.dim_in1),
            numbers.normal(num_edges, spec.dim_in2),
            numbers.normal(num_edges, 6),
            numbers.normal(6, spec.weight_numel),
        )
        yield Example(
            f"{num_edges} edges",
            spec.text,
            tensors,
            lambda run, x, y, h, m, e=edges: run(x, y, h, m, e, spec),
        )


def tabulated_examples(numbers: Numbers) -> Iterator[Example]:
    """Yield convolutions with and without edges; some are longer than the end of the table."""
    spec = TensorProductSpec.channelwise("8x0e + 8x1o", "0e + 1o", "0e + 1o")
    grid = EquidistantGrid(2.0, 12)
    for num_edges in (30, 0):
        edges = _edges(numbers, num_edges)
        values = numbers.normal(13, spec.weight_numel).double()
        table = grid.coefficients(values, numbers.dtype)
        tensors = (
            numbers.normal(8, spec.dim_in1),
            numbers.normal(num_edges, spec.dim_in2),
            numbers.normal(num_edges).abs() + 0.3,
        )
        yield Example(
            f"{num_edges} edges",
            spec.text,
            tensors,
            lambda run, x, y, r, e=edges, t=table: run(x, y, r, grid, t, e, spec),
        )
