"""Source text of a skeleton domain, which predicts the time mean of a series."""

from __future__ import annotations

_MODULE = '''\
"""The domain `{name}`: predicts the time mean of a series, as a starting point."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from scitoolkit.core.config import DataPath
from scitoolkit.core.errors import DataError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.job import Job
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results, Table
from scitoolkit.core.run_directory import RunDirectory

if TYPE_CHECKING:
    import xarray as xr


class {cls}Config(JobConfig):
    """Settings: a NetCDF file, and the variable in it."""

    {key}: Literal["{name}"] = "{name}"
    data: DataPath
    variable: str = "x"


class {cls}(Job):
    """One line for `scitoolkit ls`: what {name} does."""

    config_class: ClassVar[type[{cls}Config]] = {cls}Config

    def check(self, config: {cls}Config) -> Mapping[str, Any]:
        """Open the data; write nothing."""
        return {{"values": read(config.data, config.variable).size}}

    def train(self, config: {cls}Config, run: RunDirectory, *, resume: bool = False) -> None:
        """Fit the mean; state for resuming a training is saved in run.checkpoints."""
        mean = float(read(config.data, config.variable).mean())
        write_atomic(run.checkpoints / "done", "")
        ModelFolder.create(run).finish(run, {{"mean": mean}})

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Return the root mean squared error."""
        model = ModelFolder(directory)
        config = model.config({cls}Config)
        series = read(data or config.data, config.variable)
        rmse = float(((series - model.record()["mean"]) ** 2).mean() ** 0.5)
        table = Table(title="Error", columns=["RMSE"], rows=[[rmse]])
        results = Results(title="{name}", metrics={{"rmse": rmse}}, tables=[table])
        model.write_results(results, data)
        return results

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Write the mean for every value of the file."""
        model = ModelFolder(directory)
        variable = model.config({cls}Config).variable
        predicted = 0 * read(source, variable) + model.record()["mean"]
        predicted.to_dataset(name=variable).to_netcdf(output)


def read(path: Path, variable: str) -> xr.DataArray:
    """Return a variable of a file, in memory."""
    import xarray as xr  # local import, which keeps `scitoolkit validate` and `ls` fast

    if not path.exists():
        raise DataError("no such file", where=str(path))
    with xr.open_dataset(path) as dataset:
        return dataset[variable].load()
'''

_TEST = """\
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from scitoolkit.testing import JobContract


class Test{cls}(JobContract):
    domain = "{name}"

    def case(self, folder: Path) -> Mapping[str, Any]:
        xr.Dataset({{"x": ("time", np.arange(12.0))}}).to_netcdf(self.source(folder))
        return {{"data": str(self.source(folder))}}

    def source(self, folder: Path) -> Path:
        return folder / "series.nc"
"""


def job_skeleton(name: str, cls: str) -> tuple[str, str]:
    """Return module and test of a new domain.

    Example:
        >>> "class Mine(Job)" in job_skeleton("mine", "Mine")[0]
        True
    """
    return _MODULE.format(name=name, cls=cls, key="domain"), _TEST.format(name=name, cls=cls)
