"""The plug-in kind `generator`: solvers that make training data whose truth is known.

A generator is a `Config`: its fields are the physical parameters and the numerical settings, and
`parameters` names those that a campaign may draw. One sample is one simulation: frames with units,
and the drift of the invariants that its equations conserve.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

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
"""Attribute of a sample's file: generator, settings, seed and invariants, as JSON."""


@dataclass(frozen=True)
class Sample:
    """One simulation.

    Attributes:
        frames: variables with dims (time, ...), a unit on each; or ASE atoms with labels.
        invariants: relative drift of each quantity that the equations conserve, at the end.
        notes: what a user must know of this sample, such as particles at the edge of the grid.
    """

    frames: xr.Dataset | Sequence[Any]
    invariants: Mapping[str, float]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Check:
    """A quantity of a sample whose exact value is known.

    Attributes:
        tolerance: largest |found - exact| that the scheme promises at these settings.
    """

    quantity: str
    found: float
    exact: float
    tolerance: float
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the value found is within the tolerance."""
        return abs(self.found - self.exact) <= self.tolerance


@dataclass(frozen=True)
class Origin:
    """How a sample was made: enough to make it again, bit for bit on the same machine.

    Example:
        >>> made = Origin({"name": "kuramoto_sivashinsky", "length": 22.0}, 7)
        >>> Origin.parse(made.text()) == made
        True
    """

    settings: Mapping[str, Any]
    seed: int
    parameters: Mapping[str, float] = field(default_factory=dict)
    invariants: Mapping[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(vars(self))

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Return what `text` wrote."""
        return cls(**json.loads(text))


class Generator(Config):
    """Base of a generator; fields of a subclass are its parameters and settings.

    A subclass sets `name` and the class attributes, and writes `generate`. Heavy imports belong
    into methods: a configuration is validated without them.

    Attributes:
        parameters: {field: unit} of the fields that a campaign may draw.
        equations: what is solved, a line.
        scheme: how, a line.
        reference: publication of the scheme.
        suffix: of a sample's file: `.nc` for fields, `.xyz` for atoms.
        random: whether the seed changes the frames.

    Example:
        >>> from scitoolkit.generators import generators
        >>> generators.get("kuramoto_sivashinsky").parameters
        {'length': '1'}
    """

    name: str
    parameters: ClassVar[Mapping[str, str]] = {}
    equations: ClassVar[str] = ""
    scheme: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    suffix: ClassVar[str] = ".nc"
    random: ClassVar[bool] = True

    @abstractmethod
    def generate(self, seed: int) -> Sample:
        """Return the simulation of these settings.

        Raises:
            ConfigError: the settings cannot be solved, such as a time step beyond stability.
            NumericalError: the solution is not finite.
        """

    def invariant_bounds(self) -> Mapping[str, float]:
        """Return {invariant: largest drift that the scheme promises}, the keys of a sample."""
        return {}

    def checks(self, frames: Any) -> Sequence[Check]:
        """Return the quantities of a sample's frames whose exact values are known."""
        del frames
        return ()

    def figures(self, frames: Any) -> Sequence[Figure]:
        """Return figures of a sample for the report."""
        del frames
        return ()

    def with_parameters(self, values: Mapping[str, float]) -> Generator:
        """Return this generator with other values of its parameters.

        Raises:
            ConfigError: a name is no parameter, or a value is outside the equations' validity.
        """
        for key in values:
            if key not in self.parameters:
                raise ConfigError(
                    f"{key!r} is no parameter of the generator {self.name!r}",
                    allowed=", ".join(self.parameters) or "it has none",
                    fix=nearest_name(key, list(self.parameters)) or "",
                )
        return type(self)(**{**dict(self), **values})

    def sample(self, parameters: Mapping[str, float], seed: int) -> Sample:
        """Return the simulation with these parameters.

        Raises:
            ConfigError: a parameter is unknown or outside the equations' validity.
            NumericalError: the solution is not finite, or an invariant drifts beyond its bound.
        """
        generator = self.with_parameters(parameters)
        made = generator.generate(seed)
        bounds = generator.invariant_bounds()
        for name, drift in made.invariants.items():
            if not drift <= bounds[name]:  # NaN too
                raise NumericalError(
                    f"{name} drifts by {drift:.2g}", where=f"generator {self.name}",
                    allowed=f"{bounds[name]:.2g}", fix="a finer grid or a smaller time step",
                )  # fmt: skip
        return made

    def geometries(self, seed: int) -> Sequence[Any]:
        """Return the frames of a sample without their labels, as ASE atoms.

        Raises:
            ConfigError: the generator makes no frames of atoms.
        """
        del seed
        raise ConfigError(f"generator {self.name} has no frames without labels to choose from")

    def unlabelled(self, draw: DrawConfig, seed: int, number: int, candidate: int) -> Sequence[Any]:
        """Return `geometries` of a sample of a draw, or of what is drawn in place of it.

        Args:
            draw: with as many samples as the job has in all.
            seed: of the job.
            number: of the sample.
            candidate: 0 is the sample's own draw, others are independent of it.
        """
        order = _online("Draws")(draw, seed).order(number, candidate)
        return self.with_parameters(order.parameters).geometries(order.seed)

    def first_samples(
        self, draw: DrawConfig, seed: int, count: int, folder: Path, processes: int,
        chosen: Mapping[int, int] | None = None,
    ) -> list[Path]:  # fmt: skip
        """Make the first samples of a draw as files, one that fails replaced by another draw.

        Args:
            draw: with as many samples as the job has in all.
            seed: of the job.
            count: samples to make; those that are in the folder already are kept.
            folder: where to.
            processes: samples that are made at a time.
            chosen: {number: candidate} of the samples that are not the first of their candidates,
                see `unlabelled`.

        Raises:
            NumericalError: a sample and all that were to replace it failed.
            DataError: the disk is full; finished samples are kept.
        """
        draws = _online("Draws")(draw, seed)
        made: list[Path] = _online("first_samples")(
            self, draws, count, folder, processes, chosen or {}
        )
        return made

    def stream(
        self, draw: DrawConfig, seed: int, *, sample_dim: str,
        fields: Mapping[str, tuple[str, ...]], parameters: Mapping[str, str],
        shapes: Mapping[str, tuple[int, ...]], offset: int, journal: Path | None, workers: int,
        ahead: int, timeout: float,
    ) -> SimulationStream:  # fmt: skip
        """Return samples of a draw that are made in the background.

        Args:
            draw: with as many samples as the job has in all.
            seed: of the job.
            sample_dim: the dim that counts frames.
            fields: {variable: its other dims, in the order of the arrays}.
            parameters: {name: `linear` or `log`}.
            shapes: {variable or parameter: shape of its array}, frames first.
            offset: number of the first sample of the stream within the draw.
            journal: file of what was ordered and made, for a resumed run; None for none.
            workers: processes; 0 for none.
            ahead: samples that memory is held for.
            timeout: seconds after which a worker counts as dead.
        """
        extract = load_name("scitoolkit.generators.extract:Extract")(
            sample_dim, dict(fields), dict(parameters), dict(shapes)
        )
        made: SimulationStream = _online("SampleStream")(
            self, _online("Draws")(draw, seed), extract, offset=offset, journal=journal,
            workers=workers, ahead=ahead, timeout=timeout,
        )  # fmt: skip
        return made

    def write(self, sample: Sample, origin: Origin, path: Path) -> None:
        """Write a sample and how it was made; the file has its name once it is complete.

        Raises:
            DataError: the disk is full, or the folder cannot be written.
        """
        from scitoolkit.io.fields import write_fields

        frames: Any = sample.frames
        stated = {key: origin.settings[key] for key in self.parameters}
        write_fields(frames.assign_attrs({**stated, ORIGIN: origin.text()}), path)

    @classmethod
    def read(cls, path: Path) -> tuple[Any, Origin]:
        """Return the frames of a file that `write` made, in memory, and how they were made.

        Raises:
            DataError: it is no file of a generated sample.
        """
        from scitoolkit.core.errors import DataError
        from scitoolkit.io.fields import open_fields

        with open_fields(path) as dataset:
            if ORIGIN not in dataset.attrs:
                raise DataError("no sample that `scitoolkit generate` made", where=str(path))
            return dataset.load(), Origin.parse(dataset.attrs[ORIGIN])


def _online(name: str) -> Any:
    """Return a member of the file that makes samples in processes, which starts from this one."""
    return load_name(f"scitoolkit.generators.online:{name}")


generators: Kind[type[Generator]] = Kind(
    "generator",
    "a solver that makes training data with a known truth",
    contract="scitoolkit.testing:GeneratorContract",
)
