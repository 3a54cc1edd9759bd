"""A file of a field, read when values are first asked for, and once for all trials of a search.

Reading the field and fitting the closed-form part take much longer than training a small network
and are the same for all networks, so they are cached between the trainings of a process.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import xarray as xr

from scitoolkit.core.data_facts import DataFacts
from scitoolkit.forecasting.coding import Coding
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.data import FieldData, FieldSplits
from scitoolkit.forecasting.fields import (
    CodedSnapshots,
    field_facts,
    open_field,
    open_split,
    read_variables,
)
from scitoolkit.forecasting.fitting import NetworkStart, prepare

_NETWORK_KEYS = {"model": {"hidden", "layers", "head", "architecture"}}
_EXCLUDED_KEYS: Any = {
    "run": True,
    "workflow": True,
    "baselines": True,
    "ensemble": True,
    "training": True,
    "seed": True,
    **_NETWORK_KEYS,
}
_CACHE_SIZE = 4
_cache: dict[str, FieldFile] = {}


class FieldFile:
    """Files of a field, of which only headers are read before values are asked for.

    Args:
        config: of the job.
        path: of the files; that of the configuration in a training.
        trained: facts of the training data, which values are converted to; None in a training.

    Attributes:
        config: of the job, with the path.
        trained: as above.
    """

    def __init__(
        self, config: ForecastingConfig, path: Any, trained: DataFacts | None = None
    ) -> None:
        if path != config.data.path:
            data = config.data.model_copy(update={"path": path})
            config = config.model_copy(update={"data": data})
        self.config: ForecastingConfig = config
        self.trained: DataFacts | None = trained

    @property
    def where(self) -> str:
        """The path, for messages."""
        return str(self.config.data.path)

    @functools.cached_property
    def facts(self) -> DataFacts:
        """What the headers say about the variables."""
        return field_facts(self.config.data)

    def read(self, grid: xr.DataArray) -> FieldData:
        """Return the field in the units of the file, on the grid of a surrogate."""
        return read_variables(self.config.data, grid, self.trained)[0]

    def coded(self, coding: Coding, grid: xr.DataArray) -> CodedSnapshots:
        """Return the field in the coded values of a surrogate, on its grid."""
        return open_field(self.config, coding, grid, self.trained)

    @functools.cached_property
    def split(self) -> tuple[CodedSnapshots, FieldSplits]:
        """The field coded by its own train part, and its parts."""
        return open_split(self.config)

    @functools.cached_property
    def prepared(self) -> NetworkStart:
        """The state before the training of networks, which are left out."""
        # The job's seed initialises the networks; the cached decomposition must not depend on it.
        return prepare(*self.split, self.config.model_copy(update={"seed": 0}))


def training_file(config: ForecastingConfig, path: Path) -> FieldFile:
    """Return the file of a training; one of the last four if only the network differs."""
    file = FieldFile(config, path)
    plain = file.config.model_dump(mode="json", exclude=_EXCLUDED_KEYS)
    key = json.dumps({**plain, "changed": file.config.data.changed}, sort_keys=True)
    if key not in _cache:
        while len(_cache) >= _CACHE_SIZE:
            del _cache[next(iter(_cache))]
        _cache[key] = file
    return _cache[key]
