"""The form of an export, by the suffix of its file and its options.

Suffixes of C, Fortran, pools and ONNX take functions of arrays of any domain that has them; all
others are the domain's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from scitoolkit.core.config import Document, read_document
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.files import require_place
from scitoolkit.core.job import Exporter, Job
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.traced import Traceable, TracedFunction
from scitoolkit.deploy.config import require_shared_library

GENERATED = (".c", ".so", ".weights")
"""Files of generated code, or of the weights that a pool runs with it."""


def export_surrogate(
    job: Job, path: Path, output: Path, options: Sequence[str]
) -> Mapping[str, Any]:
    """Write a surrogate in the form that `output` and `options` ask for; return its record.

    Args:
        job: the domain of the surrogate.
        path: its model folder.
        output: file, or folder for forms of some domains.
        options: `key=value`, as `scitoolkit.api.export` describes.

    Raises:
        ConfigError: the domain has no such form, or an option is of another form.
    """
    chosen = read_document(None, options)
    suffix = output.suffix
    if "device" in chosen.raw:
        require_shared_library(output)
    if isinstance(job, Traceable) and suffix in (*GENERATED, ".onnx"):
        require_place(output)
        if suffix in GENERATED:
            return _generated(job, path, output, chosen)
        if not isinstance(job, Exporter):
            from scitoolkit.deploy.onnx_file import OnnxOptions, export_onnx

            return export_onnx(_functions(job, path), output, chosen.validate(OnnxOptions))
    if suffix in GENERATED:
        raise ConfigError(
            "surrogates of this domain cannot be written as functions of arrays",
            where=str(path),
            fix=f"a folder: -o {output.stem}",
        )
    if not isinstance(job, Exporter):
        raise ConfigError(
            "a surrogate of this kind cannot be exported in this form",
            where=str(output),
            allowed=".c, .so, .weights, .onnx",
            fix="-o model.c",
        )
    return job.export(path, output, chosen.validate(job.export_options))


def _generated(job: Traceable, path: Path, output: Path, chosen: Document) -> Mapping[str, Any]:
    from scitoolkit.deploy.export import ExportConfig, export
    from scitoolkit.deploy.pareto import export_fastest
    from scitoolkit.deploy.torch_library import export_through_torch, require_tools

    config = chosen.validate(ExportConfig)
    if config.device is not None:
        require_tools(output, config.device)  # before the surrogate is read
        return export_through_torch(_functions(job, path), output, config)
    functions = _functions(job, path)
    if config.search is not None:
        return _searched(functions, output, config)
    return (export_fastest if config.fastest else export)(functions, output, config)


def _functions(job: Traceable, path: Path) -> Sequence[TracedFunction]:
    """Return the functions of a surrogate with the facts of its training data."""
    facts = ModelFolder(path).facts()
    return [f if f.facts else replace(f, facts=facts) for f in job.traced(path)]


def _searched(functions: Sequence[Any], output: Path, config: Any) -> Mapping[str, Any]:
    """Search combinations of export options and write the fastest within `max_error`."""
    from scitoolkit.deploy.combinations import Combinations
    from scitoolkit.deploy.pareto import export_chosen
    from scitoolkit.search import Objective, Search
    from scitoolkit.search.live import LiveTable

    with Combinations(functions, config) as tried, LiveTable() as live:
        within = Objective("error", limit=config.max_error)
        objectives: list[str | Objective] = [within, "time", "bytes"]
        search = Search(tried.space, tried, objectives=objectives)
        search.enqueue(*tried.known()).run(trials=config.search, progress=live.update)
        forms = tried.forms()
    return export_chosen(functions, output, config, forms)
