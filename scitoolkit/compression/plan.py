"""What to compress of a file or store, how tightly, and into which container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scitoolkit.compression import chunked
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.series import Series
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.compressed import FILTERED

log = get_logger(__name__)
MIN_SIZE = 1024
Container = Literal["auto", "filter", "stream"]


@dataclass(frozen=True)
class FilePlan:
    """What to compress, and how tightly.

    Args:
        bound: for every variable without a separate one; None where quantities bound them.
        variables: name (or path inside the file) -> bound or None; empty means all float
            variables of at least 1024 values that are not coordinates.
        options: codec, enhancer, guarantee.
        missing: values that stand for "missing", beside those that the file itself names.
        quantities: of the variables that are bounded besides, see `quantities.text`.
        shape: of the array of a raw file, see `raw`.
        container: `filter` for datasets and arrays that other programs read through our filter or
            codec, `stream` for streams, which only scitoolkit reads; `auto` is `filter` where
            options allow it.
        networks: folder of enhancer networks that were trained on another file, see `series`.
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
        """Refuse a plan that bounds nothing, and options that its container cannot follow."""
        if self.bound is None and not self.quantities and not any(self.variables.values()):
            raise ConfigError("no bound and no quantity", fix="bound: {mode: rel, value: 1e-3}")
        if self.networks is not None:
            Series.open(self.networks)
        asked, allowed = self._unsuited()
        if asked and self.container == "filter":
            raise ConfigError(f"{asked} behind the filter", allowed=allowed,
                              fix="--container stream")  # fmt: skip

    def in_chunks(self, where: str) -> bool:
        """Whether variables are coded in chunks that other programs read; say why not.

        Args:
            where: the file, for the message.
        """
        asked, _ = self._unsuited()
        if asked and self.container == "auto":
            log.warning("%s: %s needs streams, which only scitoolkit reads", where, asked)
        return self.container != "stream" and not asked

    def options_of(self, variable: str) -> Options:
        """Return the options of a variable: with its network, if there are networks."""
        if self.networks is None:
            return self.options
        found = Series.open(self.networks).enhancer(variable)
        return self.options.model_copy(update={"enhancer": found or "none"})

    def _unsuited(self) -> tuple[str, str]:
        if self.networks is not None:
            return f"networks={self.networks.name}", "none"
        return chunked.unsuited(self.options)


@dataclass(frozen=True)
class Candidate:
    """A float variable of a file that may be compressed.

    Args:
        size: number of values.
        ndim: number of dims.
        coordinate: whether the file marks it as the coordinate of a dim.
        attributes: of the variable.
    """

    size: int
    ndim: int
    coordinate: bool
    attributes: Mapping[str, Any]


def wanted(candidates: Mapping[str, Candidate], plan: FilePlan, where: str) -> dict[str, Bound]:
    """Return the full path of each variable with a bound, and the bound.

    Args:
        candidates: path -> float variable.
        plan: names and bounds.
        where: the file, for messages.

    Raises:
        ConfigError: a name that no float variable has, or a variable without bound.
        DataError: a variable is compressed already; a second error would come on top of the first.
    """
    found = _chosen(candidates, plan, where)
    for name in found:
        if FILTERED in candidates[name].attributes:
            raise DataError(
                f"{name.lstrip('/')} is compressed already", where=where,
                fix=f"scitoolkit decompress {where} FILE, or name others with --variable",
            )  # fmt: skip
    return found


def _chosen(candidates: Mapping[str, Candidate], plan: FilePlan, where: str) -> dict[str, Bound]:
    if not plan.variables:
        coordinates = _coordinates(candidates)
        return {
            name: plan.bound
            for name, item in candidates.items()
            if plan.bound is not None
            and item.size >= MIN_SIZE and item.ndim and not item.coordinate
            and name.rpartition("/")[2] not in coordinates
        }  # fmt: skip
    found = {}
    leaves = {name.rpartition("/")[2]: name for name in candidates}
    for name, own in plan.variables.items():
        paths = (name, f"/{name}", leaves.get(name))
        path = next((p for p in paths if p in candidates), None)
        if path is None:
            known = [n.lstrip("/") for n in candidates]
            raise ConfigError(
                f"no float variable {name!r}", where=where,
                allowed=", ".join(known) or "none", fix=nearest_name(name, known) or "",
            )  # fmt: skip
        if (bound := own or plan.bound) is None:
            raise ConfigError(f"no bound for {name!r}", fix=f"--variable {name}=rel:1e-3")
        found[path] = bound
    return found


def _coordinates(candidates: Mapping[str, Candidate]) -> set[str]:
    """Return the names that some variable calls its coordinates or bounds (CF conventions)."""
    named: set[str] = set()
    for item in candidates.values():
        for key in ("coordinates", "bounds"):
            text = item.attributes.get(key, "")
            named |= set((text.decode() if isinstance(text, bytes) else str(text)).split())
    return named
