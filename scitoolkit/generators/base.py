"""Plug-in kind `generator`: solvers that produce training data with known exact results.

A generator is a `Config` whose fields are the physical parameters and the numerical settings;
`parameters` names the fields that a campaign may draw. A sample is one simulation: frames with
units, and the drift of the invariants of its equations.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import PositiveFloat

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.lazy import load_name
from scitoolkit.core.plugins import Kind
from scitoolkit.core.results import Figure
from scitoolkit.core.suggest import nearest_name

if TYPE_CHECKING:
    import xarray as xr

    from scitoolkit.core.draw import DrawConfig
    from scitoolkit.io.loader.streamed import SimulationStream

ORIGIN = "scitoolkit_sample"
"""Attribute of a sample's file with generator settings, seed and invariants, as JSON."""


@dataclass(frozen=True)
class Accuracy:
    """How far a sample is from a solution of its equations.

    Attributes:
        error: relative to the size of the fields, or of the forces.
        tolerance: largest error of a sample that is not marked.
        method: how the error was measured, with the sample's resolution.
    """

    error: float
    tolerance: float
    method: str

    @property
    def text(self) -> str:
        """The comparison in words."""
        return f"error {self.error:.2g} of the {self.method}; tolerance {self.tolerance:.2g}"


@dataclass(frozen=True)
class Sample:
    """One simulation.

    Attributes:
        frames: dataset of variables with dims (time, ...) and units, or labelled ASE atoms.
        invariants: relative drift of each conserved quantity at the end of the simulation.
        notes: warnings about this sample, such as particles at the edge of the grid.
        missed: exact values and resolutions that the sample misses by more than their tolerance; a
            campaign with such samples ends with an error, and they stay marked.
        accuracy: error of the sample; None before it is measured.
    """

    frames: xr.Dataset | Sequence[Any]
    invariants: Mapping[str, float]
    notes: Sequence[str] = ()
    missed: Sequence[str] = ()
    accuracy: Accuracy | None = None


@dataclass(frozen=True)
class Check:
    """Comparison of a quantity of a sample with its exact value.

    Attributes:
        quantity: name.
        measured: value in the sample.
        exact: exact value.
        tolerance: largest expected |measured - exact| of the scheme with these settings.
        unit: of the values.
    """

    quantity: str
    measured: float
    exact: float
    tolerance: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the measured value is within the tolerance."""
        return abs(self.measured - self.exact) <= self.tolerance

    @property
    def text(self) -> str:
        """The comparison in words."""
        return (
            f"{self.quantity} {self.measured:.4g} {self.unit}; exact {self.exact:.4g}, "
            f"within {self.tolerance:.2g}"
        )


@dataclass(frozen=True)
class Origin:
    """Provenance of a sample, sufficient to reproduce it bit for bit on the same machine.

    Attributes:
        settings: of the generator, with its name.
        seed: of the sample.
        parameters: drawn parameters.
        invariants: of the sample.
        accuracy: `error`, `tolerance` and `method` of the sample's `Accuracy`.
        missed: what the sample misses, see `Sample`.

    Example:
        >>> made = Origin({"name": "kuramoto_sivashinsky", "length": 22.0}, 7)
        >>> Origin.parse(made.text()) == made
        True
    """

    settings: Mapping[str, Any]
    seed: int
    parameters: Mapping[str, float] = field(default_factory=dict)
    invariants: Mapping[str, float] = field(default_factory=dict)
    accuracy: Mapping[str, float | str] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return the provenance as JSON."""
        return json.dumps(vars(self))

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Return the provenance from the result of `text`."""
        return cls(**json.loads(text))


class Generator(Config):
    """Base class of generators; the fields of a subclass are its parameters and settings.

    A subclass sets `name` and the class attributes, and implements `generate`. Heavy imports belong
    in methods, because configurations are validated without them.

    Attributes:
        parameters: {field: unit} of the fields that a campaign may draw.
        equations: the equations solved, in one line.
        scheme: the numerical scheme, in one line.
        reference: publication of the scheme.
        suffix: of a sample's file, such as `.nc` for fields and `.xyz` for atoms.
        random: whether the frames depend on the seed.
        tolerance: largest relative error of a sample that is not marked, see `accuracy`.

    Example:
        >>> from scitoolkit.generators import generators
        >>> generators.get("kuramoto_sivashinsky").parameters
        {'length': '1'}
    """

    name: str
    parameters: ClassVar[Mapping[str, str]] = {}
    equations: ClassVar[str]
    scheme: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    suffix: ClassVar[str] = ".nc"
    random: ClassVar[bool] = True

    tolerance: PositiveFloat = 0.05

    @abstractmethod
    def generate(self, seed: int) -> Sample:
        """Run the simulation with these settings and return its sample.

        Raises:
            ConfigError: the settings are invalid, such as an unstable time step.
            NumericalError: the solution is not finite.
        """

    def equations_line(self) -> str:
        """Return the equations solved; empty for a plug-in that does not state them."""
        return getattr(self, "equations", "")

    def accuracy(self, sample: Sample, seed: int) -> Accuracy | None:
        """Return the error of a sample, from a part of it at another resolution.

        Args:
            sample: made by these settings.
            seed: of the sample.

        Returns:
            The error, or None if a plug-in does not measure it.
        """
        del sample, seed
        return None

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return {invariant: largest expected drift} for all invariants of a sample."""
        return {}

    def checks(self, frames: Any) -> Sequence[Check]:
        """Return comparisons of quantities of the frames with exact values."""
        del frames
        return ()

    def shown_fields(self, frames: Any) -> Any:
        """Return a sample's frames with the derived fields that `figures` maps."""
        return frames

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return figures of a sample's frames for the report."""
        del frames
        return ()

    def with_parameters(self, values: Mapping[str, float]) -> Generator:
        """Return this generator with other values of its parameters.

        Raises:
            ConfigError: a name is not a parameter, or a value is invalid.
        """
        for key in values:
            if key not in self.parameters:
                raise ConfigError(
                    f"{key!r} is not a parameter of the generator {self.name!r}",
                    allowed=", ".join(self.parameters) or "it has none",
                    fix=nearest_name(key, list(self.parameters)) or "",
                )
        return type(self)(**{**dict(self), **values})

    def value_of(self, parameter: str) -> float:
        """Return the value of a parameter."""
        return float(getattr(self, parameter))

    def sample(
        self, parameters: Mapping[str, float], seed: int, *, measured: bool = True
    ) -> Sample:
        """Run the simulation with these parameters; check invariants, exact values and error.

        Args:
            parameters: values of drawn parameters.
            seed: of the sample.
            measured: whether to measure the sample's error.

        Raises:
            ConfigError: a parameter is unknown or its value is invalid.
            NumericalError: the solution is not finite, or an invariant drifts beyond its bound.
        """
        generator = self.with_parameters(parameters)
        made = generator.generate(seed)
        generator._require_finite(made.frames)
        bounds = generator.invariant_bounds()
        for name, drift in made.invariants.items():
            if not drift <= bounds[name]:  # NaN too
                raise NumericalError(
                    f"{name} drifts by {drift:.2g}",
                    where=f"generator {self.name}",
                    allowed=f"{bounds[name]:.2g}",
                    fix="a finer grid or a smaller time step",
                )
        wrong = [check.text for check in generator.checks(made.frames) if not check.holds]
        accuracy = generator.accuracy(made, seed) if measured else None
        if accuracy is not None and not accuracy.error <= accuracy.tolerance:  # NaN too
            wrong.append(accuracy.text)
        return replace(made, missed=[*made.missed, *wrong], accuracy=accuracy)

    def _require_finite(self, frames: Any) -> None:
        """Raise NumericalError if a variable of a data set is NaN or beyond the largest float."""
        for name, values in getattr(frames, "data_vars", {}).items():
            if values.dtype.kind == "f" and not abs(values).max(skipna=False) < float("inf"):
                bad = ~np.isfinite(values.to_numpy())
                frame = f", frame {np.argwhere(bad)[0][0]}" if bad.ndim else ""
                raise NumericalError(
                    f"NaN or Inf in {values.dtype}",
                    where=f"generator {self.name}: {name}{frame}",
                    fix="fewer frames, or smaller initial values",
                )

    def origin(self, sample: Sample, seed: int, parameters: Mapping[str, float]) -> Origin:
        """Return the provenance of a sample that these settings made with drawn parameters."""
        return Origin(
            json.loads(self.model_dump_json()),
            seed,
            parameters,
            dict(sample.invariants),
            vars(sample.accuracy) if sample.accuracy else {},
            list(sample.missed),
        )

    def geometries(self, seed: int) -> Sequence[Any]:
        """Return the unlabelled frames of a sample as ASE atoms.

        Raises:
            ConfigError: the generator makes no atomic structures.
        """
        del seed
        raise ConfigError(f"generator {self.name} has no frames without labels to choose from")

    def unlabelled(self, draw: DrawConfig, seed: int, number: int, candidate: int) -> Sequence[Any]:
        """Return `geometries` of a sample of a draw, or of another candidate for it.

        Args:
            draw: with the total number of samples of the job.
            seed: of the job.
            number: of the sample.
            candidate: 0 for the draw of this sample, others are independent draws.
        """
        order = _online("Draws")(draw, seed).order(number, candidate)
        return self.with_parameters(order.parameters).geometries(order.seed)

    def first_samples(
        self,
        draw: DrawConfig,
        seed: int,
        count: int,
        folder: Path,
        processes: int,
        chosen: Mapping[int, int] | None = None,
    ) -> list[Path]:
        """Write the first samples of a draw to files; a failed sample is replaced by another draw.

        Args:
            draw: with the total number of samples of the job.
            seed: of the job.
            count: number of samples; existing files are reused.
            folder: of the files.
            processes: number of samples that are made in parallel.
            chosen: {number: candidate} of the samples whose candidate is not 0, see `unlabelled`.

        Returns:
            The files by number.

        Raises:
            NumericalError: a sample and all its replacements failed.
            DataError: the disk is full; finished samples are kept.
        """
        draws = _online("Draws")(draw, seed)
        made: list[Path] = _online("first_samples")(
            self, draws, count, folder, processes, chosen or {}
        )
        return made

    def stream(
        self,
        draw: DrawConfig,
        seed: int,
        *,
        sample_dim: str,
        fields: Mapping[str, tuple[str, ...]],
        parameters: Mapping[str, str],
        shapes: Mapping[str, tuple[int, ...]],
        offset: int,
        journal: Path | None,
        workers: int,
        ahead: int,
        timeout: float,
    ) -> SimulationStream:
        """Return a stream of samples of a draw that are made in the background.

        Args:
            draw: with the total number of samples of the job.
            seed: of the job.
            sample_dim: dim that counts frames.
            fields: {variable: its other dims, in the order of the arrays}.
            parameters: {name: `linear` or `log`}.
            shapes: {variable or parameter: shape of its array}, frames first.
            offset: number of the first sample of the stream within the draw.
            journal: file that records orders and samples for a resumed run, or None.
            workers: number of processes; 0 makes samples in this process.
            ahead: number of samples that memory is allocated for.
            timeout: seconds without an answer after which a worker is replaced.
        """
        extract = load_name("scitoolkit.generators.extract:Extract")(
            sample_dim, dict(fields), dict(parameters), dict(shapes)
        )
        made: SimulationStream = _online("SampleStream")(
            self,
            _online("Draws")(draw, seed),
            extract,
            offset=offset,
            journal=journal,
            workers=workers,
            ahead=ahead,
            timeout=timeout,
        )
        return made

    def write(self, sample: Sample, origin: Origin, path: Path) -> None:
        """Write a sample and its provenance; the file appears under its name once it is complete.

        Raises:
            DataError: the disk is full, or the folder cannot be written.
        """
        from scitoolkit.io.fields import write_fields

        frames: Any = sample.frames
        made = type(self).model_validate(dict(origin.settings))
        stated: dict[str, Any] = {key: made.value_of(key) for key in made.parameters}
        stated |= {f"accuracy_{key}": value for key, value in origin.accuracy.items()}
        stated["missed"] = "; ".join(origin.missed)
        write_fields(frames.assign_attrs({**stated, ORIGIN: origin.text()}), path)

    @classmethod
    def read(cls, path: Path) -> tuple[Any, Origin]:
        """Return the frames, in memory, and the provenance of a file written by `write`.

        Raises:
            DataError: the file is not a generated sample.
        """
        from scitoolkit.core.errors import DataError
        from scitoolkit.io.fields import open_fields

        with open_fields(path) as dataset:
            if ORIGIN not in dataset.attrs:
                raise DataError("not a sample of `scitoolkit generate`", where=str(path))
            return dataset.load(), Origin.parse(dataset.attrs[ORIGIN])


def _online(name: str) -> Any:
    """Return a name of `generators.online`, which imports this module."""
    return load_name(f"scitoolkit.generators.online:{name}")


generators: Kind[type[Generator]] = Kind(
    "generator",
    "a solver that produces training data with known exact results",
    contract="scitoolkit.testing:GeneratorContract",
)
