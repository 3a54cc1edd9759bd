"""Compression of many files: target names, shared networks, and pairs to verify."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scitoolkit.compression.enhancers.network import Network
from scitoolkit.compression.files import (
    ONE_ARRAY,
    compress_file,
    holds_one_array,
    refuse_folder,
    refuse_onto_itself,
    stored_variables,
)
from scitoolkit.compression.plan import FilePlan
from scitoolkit.compression.raw import is_raw
from scitoolkit.compression.series import NetworkSeries
from scitoolkit.core.content import shipped_path
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.compressed import is_store, is_stream

STREAM_SUFFIX = ".sci"


def pairs_to_write(
    paths: Sequence[Path], *, compressing: bool
) -> tuple[list[tuple[Path, Path]], Path | None]:
    """Return (source, target) pairs, and the folder of the targets if the target is a folder.

    One source and a target that is not a folder form the only pair. Otherwise the last path is a
    folder, in which each file keeps its name; the stream of a single-array file NAME is NAME.sci.

    Args:
        paths: sources and one target.
        compressing: True to compress, False to decompress.

    Raises:
        ConfigError: fewer than two paths, two sources of one name, or a target that is its source.
        DataError: a source does not exist.

    Example:
        >>> pairs_to_write([Path("a.nc"), Path("b.nc")], compressing=True)
        ([(PosixPath('a.nc'), PosixPath('b.nc'))], None)
    """
    if len(paths) < 2:
        raise ConfigError(
            "fewer than two paths", allowed="at least one IN and an OUT", fix="IN OUT"
        )
    *named, target = paths
    sources = [shipped_path(path) for path in named]
    if len(sources) == 1 and (not target.is_dir() or is_store(target)):
        return _apart([(sources[0], target)]), None
    if target.exists() and (not target.is_dir() or is_store(target)):
        raise ConfigError(f"{len(sources)} files into one", where=str(target), allowed="a folder")
    names: dict[str, Path] = {}
    for source in sources:
        if not is_store(source):
            refuse_folder(source)
        name = _name(source, compressing=compressing)
        if name in names:
            raise ConfigError(
                f"two files would be written as {name}",
                where=str(source),
                allowed=f"another name than {names[name]} has",
            )
        names[name] = source
    return _apart([(source, target / name) for name, source in names.items()]), target


def _apart(pairs: list[tuple[Path, Path]]) -> list[tuple[Path, Path]]:
    """Return the pairs after checking that no target is its source."""
    for source, target in pairs:
        refuse_onto_itself(source, target)
    return pairs


def compress_files(
    pairs: Sequence[tuple[Path, Path]], plan: FilePlan, *, train_once: Path | None = None
) -> Iterator[tuple[Path, Path, list[dict[str, Any]]]]:
    """Compress files in turn and yield source, target and records of each.

    Args:
        pairs: sources and targets.
        plan: for all files.
        train_once: folder to store the enhancer networks of the first file in, which are used for
            the other files.

    Raises:
        ConfigError: no network gained on the first file, or the folder already has networks.
    """
    if train_once is not None:
        plan = with_training(plan, train_once)
    seconds = []
    for number, (source, target) in enumerate(pairs):
        started = time.perf_counter()
        records = compress_file(source, target, plan)
        seconds.append(time.perf_counter() - started)
        if number == 0 and train_once is not None:
            single = not is_store(target) and is_stream(target)
            variables_of_file = [
                replace(one, name=ONE_ARRAY) if single else one for one in stored_variables(target)
            ]
            if not NetworkSeries(train_once).keep(variables_of_file, source.name):
                raise ConfigError(
                    "no network improves the compression",
                    where=str(source),
                    fix="--for quality, or a longer --train-seconds",
                )
            plan = replace(plan, networks=train_once)
        yield source, target, records
    if plan.networks is not None:
        others = seconds[1:] if train_once is not None else seconds
        timed = train_once is not None and others
        # The first file took training and coding, the others coding alone.
        training = max(seconds[0] - statistics.median(others), 0.0) if timed else None
        NetworkSeries(plan.networks).account(len(others), training)


def with_training(plan: FilePlan, folder: Path) -> FilePlan:
    """Return the plan of the first file of a series, on which networks are trained.

    Raises:
        ConfigError: another enhancer is set, or the folder already has networks.
    """
    if NetworkSeries(folder).exists:
        raise ConfigError(
            "the folder already has networks",
            where=str(folder),
            fix=f"--enhancer {folder} to use them",
        )
    enhancer = plan.options.enhancer
    if isinstance(enhancer, str) and enhancer == "auto":
        return replace(plan, options=plan.options.model_copy(update={"enhancer": Network()}))
    if not isinstance(enhancer, Network):
        name = enhancer if isinstance(enhancer, str) else enhancer.name
        raise ConfigError(f"enhancer {name} with --train-once", allowed="network, auto")
    return plan


def pairs_to_verify(compressed: Path, original: Path) -> list[tuple[Path, Path]]:
    """Return (compressed, original) pairs of two files, or of two folders of files.

    Raises:
        DataError: a folder and a file, or a compressed file without an original of its name.
    """
    original = shipped_path(original)
    folders = [path.is_dir() and not is_store(path) for path in (compressed, original)]
    if folders == [False, False]:
        return [(compressed, original)]
    if folders != [True, True]:
        raise DataError(
            "a folder of files and a file",
            where=f"{compressed}, {original}",
            allowed="two files or two folders",
        )
    files = [path for path in sorted(compressed.iterdir()) if is_store(path) or path.is_file()]
    pairs = [(path, original / _original_name(path)) for path in files]
    for path, other in pairs:
        if not other.exists():
            raise DataError(f"no original of {path.name}", where=str(other))
    if not pairs:
        raise DataError("the folder is empty", where=str(compressed))
    return pairs


def _name(source: Path, *, compressing: bool) -> str:
    if compressing:
        single = not is_store(source) and holds_one_array(source)
        return source.name + STREAM_SUFFIX if single else source.name
    return _original_name(source)


def _original_name(compressed: Path) -> str:
    if is_store(compressed) or not is_stream(compressed):
        return compressed.name
    name = compressed.name.removesuffix(STREAM_SUFFIX)
    return name if is_raw(Path(name)) or name.endswith(".npy") else f"{name}.npy"
