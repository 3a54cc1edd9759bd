"""The only way from a path to data, without torch: in training, in use and in `validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scitoolkit.core.data_differences import compare, problems, refuse
from scitoolkit.core.data_facts import DataFacts
from scitoolkit.surrogate.stages import DataStages, Indexes, Produces


def close(thing: Any) -> None:
    """Close what can be closed."""
    end = getattr(thing, "close", None)
    if end is not None:
        end()


def source_path(stages: DataStages, config: Any, directory: Path | None) -> Any:
    """Return the path of the training data of a run."""
    if isinstance(stages, Produces) and directory is not None:
        files = stages.files(config, Path(directory))
        if files is not None:
            return files
    return config.data.path


def opened(stages: DataStages, config: Any, path: Any, keep: bool | None) -> Any:
    """Return opened data without a look at their facts; see `open_checked`."""
    if keep is not None and isinstance(stages, Indexes):
        return stages.open_indexed(config, path, keep)
    return stages.open(config, path)


def open_checked(
    stages: DataStages,
    config: Any,
    path: Any,
    trained: DataFacts | None = None,
    *,
    keep: bool | None = None,
) -> Any:
    """Open data; refuse what is wrong or differs, convert what can be converted.

    The only way from a path to data, in training and in use.

    Args:
        stages: of the domain.
        config: of the job.
        path: files to open.
        trained: facts of the training data; None in training itself.
        keep: for training data, whether an index of the files may be stored; None in use.

    Raises:
        DataError: with every difference that changes the result, both sides and the remedy.
    """
    data = opened(stages, config, path, keep)
    try:
        facts, accepts = stages.facts(config, data), stages.accepts(config)
        differences = problems(facts, accepts)
        if trained is not None:
            differences += compare(trained, facts, accepts)
        refuse(differences, str(getattr(data, "where", path)))
        return stages.convert(data, differences, trained)
    except BaseException:
        close(data)
        raise
