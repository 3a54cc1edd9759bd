"""The configuration of a compression job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scitoolkit.compression.choose import Options
from scitoolkit.compression.plan import Container
from scitoolkit.core.config import Config, DataPath
from scitoolkit.core.job_config import JobConfig


class FileConfig(Config):
    """Input file and its variables.

    Attributes:
        path: .npy, HDF5, NetCDF, Zarr, or raw values (.f32, .f64).
        variables: names; by default all float variables that are not coordinates.
        missing: values that mark missing data, in addition to those declared in the file.
        shape: of raw values, the slowest dim first.
    """

    path: DataPath
    variables: list[str] = Field(default_factory=list)
    missing: list[float] = Field(default_factory=list)
    shape: list[PositiveInt] | None = None

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages required to read the file."""
        from scitoolkit.io.fields import packages_for

        return packages_for(self.path)


class BoundConfig(Config):
    """Error bound: `mode` abs, rel, pw_rel or psnr, and its value; see `bounds.Bound`."""

    mode: Literal["abs", "rel", "pw_rel", "psnr"] = "rel"
    value: PositiveFloat = 1e-2


class CompressionConfig(JobConfig, Options):
    """The configuration of a compression job: the keys of `Options` and those below.

    Attributes:
        data: file and variables to compress.
        bound: error bound of the variables; null if only quantities are bounded.
        quantities: bounds on derived quantities, for example `sqrt(u^2 + v^2): abs=1e-2`.
        container: `filter` for datasets that other programs read through scitoolkit's HDF5 filter
            or Zarr codec, `stream` for streams, `auto` for `filter` if the other options allow it.
        networks: folder of enhancer networks written by `scitoolkit compress --train-once`.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "base": "codec",
        "strictness": "guarantee",
        "seconds": "train_seconds",
    }
    domain: Literal["compression"] = "compression"
    data: FileConfig
    bound: BoundConfig | None = BoundConfig()
    quantities: list[str] = Field(default_factory=list)
    container: Container = "auto"
    networks: DataPath | None = None
