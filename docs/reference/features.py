"""Features by domain: what each domain has, as its code says, or why it lacks it."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

from scitoolkit.core.job import Job
from scitoolkit.core.jobs import domains
from scitoolkit.surrogate.job import SurrogateJob
from scitoolkit.surrogate.stages import TraceableStages

DOMAINS = (
    "emulation",
    "superresolution",
    "forecasting",
    "potentials",
    "graphs",
    "mesh_transport",
    "graph_sets",
    "graph_links",
)
HEAD = """# What each domain has

Written by `python docs/reference/make.py` from the code: a key of a domain's configuration, a
method of its job, or a function that its package imports. A cell names what it rests on; a number
in brackets stands for the reason below the table why a domain lacks a feature.

"""
Probe = Callable[[type[Job]], str]


def key(*names: str) -> Probe:
    """Return the probe for the first of some keys of a domain's configuration."""

    def probe(job: type[Job]) -> str:
        present = set(_keys(job.config_class))
        return next((f"`{name}`" for name in names if name in present), "")

    return probe


def method(*names: str) -> Probe:
    """Return the probe for the first of some methods that the class of a job defines."""

    def probe(job: type[Job]) -> str:
        own = {name for cls in job.__mro__ if cls is not Job for name in vars(cls)}
        return next((f"`{name}()`" for name in names if name in own), "")

    return probe


def either(*probes: Probe) -> Probe:
    """Return the probe for the first of some probes that finds something."""
    return lambda job: next(filter(None, (probe(job) for probe in probes)), "")


def imports(*names: str, module: str = "") -> Probe:
    """Return the probe for the first of some functions or classes that a domain imports.

    Args:
        names: of them.
        module: that they are imported from; any by default.
    """

    def probe(job: type[Job]) -> str:
        present = {name for home, name in _imported(job) if module in ("", home)}
        return next((f"`{name}`" for name in names if name in present), "")

    return probe


def exports(job: type[Job]) -> str:
    """Return what exports the domain's models: a method of the job, or its stages."""
    if issubclass(job, SurrogateJob) and "traced" not in vars(job):
        return "`traced()`" if isinstance(job.stages, TraceableStages) else method("export")(job)
    return method("traced", "export")(job)


FEATURES: Mapping[str, Probe] = {
    "facts of the data stored and compared": imports("compare", "open_checked"),
    "folder of a model with checksums": imports("ModelFolder"),
    "`validate` beyond the schema": method("validate"),
    "splits that leak are refused": imports("require_no_leak"),
    "units converted at reading": either(key("data.units", "data.labels"), imports("as_trained")),
    "fine-tuning from a trained model": key("start", "low_rank.of"),
    "low rank from trained weights": key("low_rank"),
    "weights in few bits": key("weights_dtype"),
    "samples of a generator": key("data.generator", "data.stream"),
    "several networks": key("uncertainty.members", "members", "ensemble"),
    "intervals": key("uncertainty.coverage", "intervals"),
    # A search asks for trials only of jobs that also tell their cost.
    "trial of a search scored by the domain": method("search_cost"),
    "predictions in parts that continue": imports("Parts", module="scitoolkit.io.parts"),
    "one sample divided over processes": key("spatial_dim", "graph.algorithm"),
    "one network divided over processes": imports("Division"),
    "experts of a network on processes": imports("ExpertLayer"),
    "export to C": exports,
}
# Of which features a domain lacks by reason: (feature, domains): reason.
REASONS: Mapping[tuple[str, tuple[str, ...]], str] = {
    ("splits that leak are refused", ("forecasting",)): (
        "The split is of one series by time, so that a later part never enters the training."
    ),
    ("splits that leak are refused", ("potentials",)): (
        "Frames that two parts share are told in the log and the report: trajectories repeat "
        "configurations on purpose, as in replicas."
    ),
    ("splits that leak are refused", ("graphs",)): (
        "All nodes are in one graph by design (transductive); masks that overlap are refused."
    ),
    ("splits that leak are refused", ("graph_sets",)): (
        "`validate` tells equal graphs of training and test; sets of molecules repeat on purpose."
    ),
    ("splits that leak are refused", ("graph_links",)): (
        "Links of validation and test are removed from the graph of messages by the split itself."
    ),
    ("splits that leak are refused", ("mesh_transport",)): (
        "Simulations are split whole, each in one file."
    ),
    ("units converted at reading", ("graphs", "mesh_transport", "graph_sets", "graph_links")): (
        "Arrays of graphs have no standard attribute for units."
    ),
    ("fine-tuning from a trained model", ("forecasting",)): (
        "Closed forms are fitted again in seconds; nets of POD coefficients depend on the modes."
    ),
    ("low rank from trained weights", ("superresolution",)): "Not built.",
    (
        "low rank from trained weights",
        ("forecasting", "graphs", "mesh_transport", "graph_sets", "graph_links"),
    ): ("Layers are narrow (fewer than 10^5 weights): factors would save nothing."),
    ("low rank from trained weights", ("potentials",)): (
        "Embedding networks are replaced by tables at export, which saves more."
    ),
    ("weights in few bits", ("forecasting",)): "Arrays are stored in 16 bits already.",
    ("weights in few bits", ("potentials",)): (
        "Forces are derivatives: rounded weights move energies of dynamics, which nobody measured."
    ),
    ("weights in few bits", ("mesh_transport",)): (
        "A model folder is some 100 kB; the graph is what takes memory."
    ),
    ("samples of a generator", ("superresolution",)): (
        "Crops are drawn from stored simulations; a generator writes these first "
        "(`scitoolkit generate`)."
    ),
    ("samples of a generator", ("forecasting",)): "A forecast is fitted to one series.",
    ("samples of a generator", ("graphs", "graph_links")): "One graph is in memory.",
    ("samples of a generator", ("graph_sets",)): (
        "Graphs are generated and stored before the training (datasets/huckel)."
    ),
    ("samples of a generator", ("mesh_transport",)): (
        "Trajectories are generated and stored before the training (datasets/mesh_diffusion)."
    ),
    ("several networks", ("potentials",)): (
        "A committee is trained where it selects configurations: `data.teaching`."
    ),
    ("intervals", ("superresolution",)): (
        "Not built: a coverage of 0.9 needs nine simulations for validation, as crops of one "
        "depend on each other; most sets have one or two."
    ),
    ("intervals", ("potentials",)): (
        "Spread of forces over a committee (`data.teaching`); not calibrated to a coverage."
    ),
    ("intervals", ("graphs", "graph_links")): "Classes and links have probabilities.",
    (
        "trial of a search scored by the domain",
        (
            "emulation",
            "superresolution",
            "potentials",
            "graphs",
            "mesh_transport",
            "graph_sets",
            "graph_links",
        ),
    ): "The trial's objective is a metric of the validation part, measured by the trainer.",
    ("predictions in parts that continue", ("forecasting",)): (
        "A forecast is computed in seconds, in one piece."
    ),
    ("predictions in parts that continue", ("graph_sets",)): "Predictions are one row a graph.",
    ("predictions in parts that continue", ("graphs", "graph_links")): (
        "All nodes are predicted in one pass over the graph."
    ),
    ("predictions in parts that continue", ("mesh_transport",)): (
        "A rollout depends on all its former steps; not divided."
    ),
    ("one sample divided over processes", ("superresolution",)): (
        "Crops have a fixed size that fits one process."
    ),
    ("one sample divided over processes", ("forecasting",)): (
        "POD coefficients are few; the decomposition itself is streamed."
    ),
    ("one sample divided over processes", ("graph_sets",)): (
        "Batches are divided: graphs are small beside the set."
    ),
    ("one sample divided over processes", ("graph_links",)): (
        "Not built: each process holds the whole graph."
    ),
    ("one sample divided over processes", ("potentials",)): (
        "LAMMPS divides the atoms at use; training frames are small."
    ),
    (
        "one network divided over processes",
        (
            "superresolution",
            "forecasting",
            "potentials",
            "graphs",
            "mesh_transport",
            "graph_sets",
            "graph_links",
        ),
    ): "Its networks fit in one process; `strategy: sharded` divides their weights.",
    (
        "experts of a network on processes",
        (
            "superresolution",
            "forecasting",
            "potentials",
            "graphs",
            "mesh_transport",
            "graph_sets",
            "graph_links",
        ),
    ): "Its networks have no experts.",
    (
        "export to C",
        ("graphs", "graph_sets", "graph_links"),
    ): "A C interface has arrays of fixed sizes; graphs have none.",
}


def _keys(config: type[BaseModel], parents: str = "") -> Iterator[str]:
    for name, field in config.model_fields.items():
        yield parents + name
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel) and not parents:
                yield from _keys(kind, f"{name}.")


@functools.cache
def _imported(job: type[Job]) -> frozenset[tuple[str | None, str]]:
    room = ".".join(job.__module__.split(".")[:2])
    spec = importlib.util.find_spec(room)
    assert spec is not None
    assert spec.origin is not None
    nodes = (
        node
        for path in Path(spec.origin).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )
    return frozenset(
        (node.module, name.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    )


def cells() -> dict[tuple[str, str], str]:
    """Return what each (feature, domain) rests on; empty where the domain lacks the feature."""
    return {
        (feature, domain): probe(domains.get(domain))
        for feature, probe in FEATURES.items()
        for domain in DOMAINS
    }


def reason(feature: str, domain: str) -> str:
    """Return why a domain lacks a feature, or nothing."""
    stated = (text for (what, of), text in REASONS.items() if what == feature and domain in of)
    return next(stated, "")


def features_page() -> str:
    """Return features.md."""
    numbers: dict[str, int] = {}
    rows, present = [], cells()
    for feature in FEATURES:
        row = [feature]
        for domain in DOMAINS:
            text = present[feature, domain]
            why = reason(feature, domain)
            row.append(text or (f"[{numbers.setdefault(why, len(numbers) + 1)}]" if why else "-"))
        rows.append(f"| {' | '.join(row)} |\n")
    head = f"| feature | {' | '.join(DOMAINS)} |\n|---|{'---|' * len(DOMAINS)}\n"
    notes = "".join(f"{number}. {why}\n" for why, number in numbers.items())
    return f"{HEAD}{head}{''.join(rows)}\n{notes}"
