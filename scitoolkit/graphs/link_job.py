"""Link prediction as a job of the command line and the Python API."""

from __future__ import annotations

from typing import ClassVar

from scitoolkit.graphs.link_config import LinkConfig
from scitoolkit.surrogate.job import StagesAt, SurrogateJob


class LinkJob(SurrogateJob):
    """Job that learns which pairs of nodes have an edge, and scores other pairs."""

    starter_name: ClassVar[str] = "scitoolkit.graphs.starter:starter_of_links"
    config_class: ClassVar[type[LinkConfig]] = LinkConfig
    stages = StagesAt("scitoolkit.graphs.link_stages:LinkStages")
    data_stages = StagesAt("scitoolkit.graphs.link_data:LinkDataStages")
