"""Many files at once: where each is written, and which original a compressed one belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scitoolkit.compression.files import holds_one_array, refuse_folder
from scitoolkit.compression.raw import is_raw
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.compressed import is_store, is_stream

STREAM_SUFFIX = ".sci"


def pairs_to_write(
    paths: Sequence[Path], *, compressing: bool
) -> tuple[list[tuple[Path, Path]], Path | None]:
    """Return source and target of each file, and the folder of the targets if they share one.

    One source and a target that is no folder are taken as they are; else the last path is a folder,
    made when it is not there, in which each file keeps its name. A file of one array becomes a
    stream, NAME.sci, and NAME again.

    Args:
        paths: sources and one target.
        compressing: whether streams are written, or read.

    Raises:
        ConfigError: fewer than two paths, or two sources of one name.
        DataError: a source is not there.

    Example:
        >>> pairs_to_write([Path("a.nc"), Path("b.nc")], compressing=True)
        ([(PosixPath('a.nc'), PosixPath('b.nc'))], None)
    """
    if len(paths) < 2:
        raise ConfigError("one path", allowed="at least one IN and an OUT", fix="IN OUT")
    *sources, target = paths
    if len(sources) == 1 and (not target.is_dir() or is_store(target)):
        return [(sources[0], target)], None
    if target.exists() and (not target.is_dir() or is_store(target)):
        raise ConfigError(f"{len(sources)} files into one", where=str(target), allowed="a folder")
    names: dict[str, Path] = {}
    for source in sources:
        if not is_store(source):
            refuse_folder(source)
        name = _name(source, compressing=compressing)
        if name in names:
            raise ConfigError(f"two files would be written as {name}", where=str(source),
                              allowed=f"another name than {names[name]} has")  # fmt: skip
        names[name] = source
    return [(source, target / name) for name, source in names.items()], target


def pairs_to_verify(compressed: Path, original: Path) -> list[tuple[Path, Path]]:
    """Return each compressed file with its original: two files, or two folders of such.

    Raises:
        DataError: a folder and a file, or a compressed file without an original of its name.
    """
    folders = [path.is_dir() and not is_store(path) for path in (compressed, original)]
    if folders == [False, False]:
        return [(compressed, original)]
    if folders != [True, True]:
        raise DataError("a folder of files and a file", where=f"{compressed}, {original}",
                        allowed="two files or two folders")  # fmt: skip
    files = [path for path in sorted(compressed.iterdir()) if is_store(path) or path.is_file()]
    found = [(path, original / _original_name(path)) for path in files]
    for path, other in found:
        if not other.exists():
            raise DataError(f"no original of {path.name}", where=str(other))
    if not found:
        raise DataError("no file in it", where=str(compressed))
    return found


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
