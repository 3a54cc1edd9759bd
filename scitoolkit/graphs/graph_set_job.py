"""Targets of whole graphs as a job of the command line and the Python API."""

from __future__ import annotations

from typing import ClassVar

from scitoolkit.graphs.graph_set_config import GraphSetConfig
from scitoolkit.surrogate.job import StagesAt, SurrogateJob


class GraphSetJob(SurrogateJob):
    """Job that learns targets of whole graphs, such as molecules, from batches of graphs."""

    starter_name: ClassVar[str] = "scitoolkit.graphs.starter:starter"
    config_class: ClassVar[type[GraphSetConfig]] = GraphSetConfig
    stages = StagesAt("scitoolkit.graphs.graph_set_stages:GraphSetStages")
    data_stages = StagesAt("scitoolkit.graphs.graph_set_data:GraphSetData")
