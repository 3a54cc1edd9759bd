"""The stages of transport on meshes that are about the data; without torch."""

from __future__ import annotations

from typing import Any

from scitoolkit.core.data_differences import Accepts
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.errors import ConfigError
from scitoolkit.graphs.facts import mesh_facts
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.graphs.mesh_data import MeshFile
from scitoolkit.surrogate.stages import DataStages, Parts


class MeshFiles(DataStages):
    """Stages of the data, a `MeshFile` whose samples are trajectories on all of its meshes."""

    def open(self, config: MeshConfig, path: Any) -> MeshFile:
        """Open all meshes of a file: a scheme applies to those that it was not trained on."""
        return MeshFile(path)

    def open_indexed(self, config: MeshConfig, path: Any, keep: bool) -> MeshFile:
        """Open the meshes to train on."""
        return MeshFile(path, config.data.meshes)

    def facts(self, config: MeshConfig, data: MeshFile) -> DataFacts:
        """Describe the components, kinds of number and units."""
        return mesh_facts(data.path, data.geometry.names)

    def accepts(self, config: MeshConfig) -> Accepts:
        """Return that values are not converted."""
        return Accepts(convert=False)

    def split(self, config: MeshConfig, data: MeshFile) -> Parts:
        """Return the trajectories of each part, from the first to the last."""
        count = data.geometry.num_flows
        test = count - config.split.test
        validation = test - config.split.validation
        if validation < 1:
            raise ConfigError(
                f"{count} trajectories leave none to train on",
                where="split.validation, split.test",
                allowed=f"together at most {count - 1}",
            )
        cuts = {"train": (0, validation), "validation": (validation, test), "test": (test, count)}
        return {name: list(range(*cut)) for name, cut in cuts.items()}
