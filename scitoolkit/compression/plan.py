"""Compression plan of a file or store: variables, bounds, options and container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from scitoolkit.compression import chunked
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.enhancers.network import Network
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.series import NetworkSeries
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.suggest import nearest_name

log = get_logger(__name__)
MIN_SIZE = 1024
Container = Literal["auto", "filter", "stream"]


@dataclass(frozen=True)
class FilePlan:
    """Variables of a file to compress, with their bounds and options.

    Args:
        bound: of variables without a separate bound; None if only quantities are bounded.
        variables: name (or path inside the file) -> bound or None; empty means all float
            variables of at least 1024 values that are not coordinates.
        options: codec, enhancer, guarantee.
        missing: values that mark missing data, in addition to those declared in the file.
        quantities: bounds on derived quantities, see `quantities.text`.
        shape: of the array of a raw file, see `raw`.
        container: `filter` for datasets and arrays that other programs read through scitoolkit's
            filter or codec, `stream` for streams, which only scitoolkit reads, `auto` for `filter`
            if the options allow it.
        networks: folder of enhancer networks trained on another file, see `series`.

    Raises:
        ConfigError: nothing is bounded, or `filter` does not support the options.
    """

    bound: Bound | None
    variables: Mapping[str, Bound | None]
    options: Options
    missing: MissingValues = field(default_factory=MissingValues)
    quantities: tuple[str, ...] = ()
    shape: tuple[int, ...] | None = None
    container: Container = "auto"
    networks: Path | None = None

    def __post_init__(self) -> None:
        """Validate bounds, networks and container."""
        if self.bound is None and not self.quantities and not any(self.variables.values()):
            raise ConfigError("no bound and no quantity", fix="bound: {mode: rel, value: 1e-3}")
        if self.networks is not None:
            NetworkSeries.open(self.networks)
        asked, allowed = self._unsuited()
        if asked and self.container == "filter":
            raise ConfigError(f"{asked} with the filter", allowed=allowed, fix="--container stream")

    def in_chunks(self, where: str) -> bool:
        """Return whether variables are coded in chunks; log why `auto` uses streams instead.

        Args:
            where: the file, for the message.
        """
        asked, _ = self._unsuited()
        if asked and self.container == "auto":
            log.warning("%s: %s requires streams, which only scitoolkit reads", where, asked)
        return self.container != "stream" and not asked

    def options_of(self, variable: str) -> Options:
        """Return the options of a variable, with its trained network if the plan has networks."""
        if self.networks is None:
            return self.options
        enhancer = NetworkSeries.open(self.networks).enhancer(variable)
        return self.options.model_copy(update={"enhancer": enhancer or "none"})

    def _unsuited(self) -> tuple[str, str]:
        by_name = self.container == "filter"
        if self.networks is not None and not by_name:
            return f"networks={self.networks.name}", "none"
        options = self.options
        if self.networks is not None:
            options = options.model_copy(update={"enhancer": Network()})
        return chunked.unsuited(options, by_name=by_name)


@dataclass(frozen=True)
class Candidate:
    """A float variable of a file that may be compressed.

    Args:
        size: number of values.
        ndim: number of dims.
        role: its role for other variables (`io.variable_roles`), "" for data.
        compressed: whether its values pass through scitoolkit's filter or codec.
    """

    size: int
    ndim: int
    role: str = ""
    compressed: bool = False


def wanted(candidates: Mapping[str, Candidate], plan: FilePlan, where: str) -> dict[str, Bound]:
    """Return path -> bound of the variables to compress.

    Args:
        candidates: path -> float variable.
        plan: names and bounds.
        where: the file, for messages.

    Raises:
        ConfigError: a name that no float variable or more than one has, or a variable without
            bound.
        DataError: a variable is already compressed, so that errors would accumulate.
    """
    chosen = _chosen(candidates, plan, where)
    for name in chosen:
        if candidates[name].compressed:
            raise DataError(
                f"{name.lstrip('/')} is already compressed",
                where=where,
                fix=f"scitoolkit decompress {where} FILE, or name others with --variable",
            )
    return chosen


def _chosen(candidates: Mapping[str, Candidate], plan: FilePlan, where: str) -> dict[str, Bound]:
    if not plan.variables:
        large = {n: item for n, item in candidates.items() if item.size >= MIN_SIZE and item.ndim}
        exact = [f"{n.lstrip('/')} ({item.role})" for n, item in large.items() if item.role]
        if exact and plan.bound is not None:
            log.info("%s: copied exactly unless named by --variable: %s", where, ", ".join(exact))
        return {n: plan.bound for n, item in large.items() if plan.bound and not item.role}
    named = {}
    for name, separate in plan.variables.items():
        if (bound := separate or plan.bound) is None:
            raise ConfigError(f"no bound for {name!r}", fix=f"--variable {name}=rel:1e-3")
        named[_path_of(name, candidates, where)] = bound
    return named


def _path_of(name: str, candidates: Iterable[str], where: str) -> str:
    """Return the path of a variable given by its path or, if that is unique, its last part."""
    paths = [path for path in (name, f"/{name}") if path in candidates]
    paths = paths or [path for path in candidates if path.rpartition("/")[2] == name]
    if len(paths) == 1:
        return paths[0]
    listed = [path.lstrip("/") for path in paths or candidates]
    if paths:
        raise ConfigError(
            f"{len(paths)} float variables {name!r}",
            where=where,
            allowed=", ".join(listed),
            fix=f"--variable {listed[0]}",
        )
    raise ConfigError(
        f"no float variable {name!r}",
        where=where,
        allowed=", ".join(listed) or "none",
        fix=nearest_name(name, listed) or "",
    )
