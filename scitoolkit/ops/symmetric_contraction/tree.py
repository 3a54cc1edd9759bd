"""Prefix tree of the monomials of a contraction."""

from __future__ import annotations

from dataclasses import dataclass, field

from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec, polynomial


@dataclass
class Node:
    """A prefix of monomials with its rows, and its children by the next variable."""

    rows: list[tuple[int, int]] = field(default_factory=list)  # (row, output component)
    children: dict[int, Node] = field(default_factory=dict)


def prefix_tree(spec: ContractionSpec) -> Node:
    """Return the prefix tree of a contraction's monomials."""
    rows, root = polynomial(spec), Node()
    for row, (monomial, component) in enumerate(zip(rows.monomials, rows.components, strict=True)):
        node = root
        for variable in monomial:
            node = node.children.setdefault(variable, Node())
        node.rows.append((row, component))
    return root
