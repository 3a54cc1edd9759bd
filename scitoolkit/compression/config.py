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
    """Which variables of which file.

    Attributes:
        path: .npy, HDF5, NetCDF, Zarr, or raw values (.f32, .f64).
        variables: names; all float variables that are no coordinates unless given.
        missing: values that stand for "missing", beside those that the file itself names.
        shape: of raw values, the slowest dim first.
    """

    path: DataPath
    variables: list[str] = Field(default_factory=list)
    missing: list[float] = Field(default_factory=list)
    shape: list[PositiveInt] | None = None

    def required_packages(self) -> tuple[str, ...]:
        """Return the packages that reading the files needs."""
        from scitoolkit.io.fields import packages_for

        return packages_for(self.path)


class BoundConfig(Config):
    """How tightly: `mode` abs, rel, pw_rel or psnr."""

    mode: Literal["abs", "rel", "pw_rel", "psnr"] = "rel"
    value: PositiveFloat = 1e-2


class CompressionConfig(JobConfig, Options):
    """The configuration of a compression job: that of `Options`, and the keys below.

    Attributes:
        data: what to compress.
        bound: how tightly; null where quantities say it.
        quantities: bounds on what is computed from variables, `sqrt(u^2 + v^2): abs=1e-2` say.
        container: `filter` for datasets that other programs read through our HDF5 filter or Zarr
            codec, `stream` for streams, `auto` for `filter` where the options above allow it.
        networks: folder of enhancer networks that `scitoolkit compress --train-once` wrote.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "base": "codec", "strictness": "guarantee", "seconds": "train_seconds",
    }  # fmt: skip
    domain: Literal["compression"] = "compression"
    data: FileConfig
    bound: BoundConfig | None = BoundConfig()
    quantities: list[str] = Field(default_factory=list)
    container: Container = "auto"
    networks: DataPath | None = None
