"""Distributed full-graph training of torch-geometric models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.graphs.adapter import detach as detach
    from scitoolkit.graphs.adapter import dropout_by_node as dropout_by_node
    from scitoolkit.graphs.config import GraphConfig as GraphConfig
    from scitoolkit.graphs.graph import Graph as Graph
    from scitoolkit.graphs.graph import from_data as from_data
    from scitoolkit.graphs.graph import read_graph as read_graph
    from scitoolkit.graphs.graph import write_graph as write_graph
    from scitoolkit.graphs.job import GraphJob as GraphJob
    from scitoolkit.graphs.mesh_config import MeshConfig as MeshConfig
    from scitoolkit.graphs.mesh_job import MeshJob as MeshJob
    from scitoolkit.graphs.proof import attach as attach
    from scitoolkit.graphs.proof import prove as prove

_NAMES = {
    "adapter": "detach dropout_by_node",
    "config": "GraphConfig",
    "graph": "Graph from_data read_graph write_graph",
    "job": "GraphJob",
    "mesh_config": "MeshConfig",
    "mesh_job": "MeshJob",
    "proof": "attach prove",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
