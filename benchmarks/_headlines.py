"""README's table, and the table of what something else does better: one rule for all rows.

A row pools all comparisons of its benchmark whose kind is that of the first one. It shows the
measured case with the smallest gain, the strongest rival of that case, and the range of the gain
over all cases. What the benchmark lost, when and where it was measured, and whether a closed form
won are read from the same file. None of it is typed by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from _comparison import Case, Comparison
from _comparisons import COMPARISONS
from _places import ROOT
from _stored import stored

OLD = "†"  # marks a result older than the code by more releases than its tolerance


@dataclass(frozen=True)
class Headline:
    """A row of README: what was computed on which data, and what the figures do not show.

    Args:
        note: what else is lost, filled with figures of the benchmark.
        tolerance: releases of the package after which a result is marked as old.
    """

    benchmark: str
    task: str
    data: str
    note: str = ""
    tolerance: int = 1


HEADLINES = (
    Headline(
        "potential_mace",
        "MACE: energy and forces, or a training step",
        "192 atoms of water, equal weights",
    ),
    Headline(
        "potential_deepmd",
        "Deep Potential: energy and forces, or a training step",
        "water, equal weights, one thread",
    ),
    Headline(
        "tensor_product",
        "equivariant layers: products, contractions, harmonics",
        "17 published layers and products, 10,000 edges, one thread",
        "{compile_seconds_first_mace_large:.0f} s of compilation at the first call",
    ),
    Headline(
        "graphs",
        "graph networks: one epoch, or one product with the adjacency matrix",
        "131,072 nodes, 3.7 million nonzeros, one thread",
    ),
    Headline(
        "loader",
        "shuffled samples from a slow file system",
        "256 MiB of HDF5, 16 samples a chunk",
        "{rss_over_budget_mib:.0f} MiB of memory beyond the buffer; where files cannot be "
        "converted, the gain is {speedup_contiguous_w2:.1f} to {speedup_chunked_25:.0f} x",
    ),
    Headline(
        "emulation_rb2d",
        "emulator of convection: one step, or a rollout",
        "Rayleigh-Bénard, Ra 10⁶, unseen flow",
        "{train_cpu_seconds:.0f} CPU-s of training; better than linear extrapolation in "
        "{steps_better_than_linear_extrapolation} of {rollout_steps} steps",
    ),
    Headline(
        "superres_rb2d",
        "super-resolution 4 x 8 x 8 of convection, squared error",
        "Rayleigh-Bénard, Ra 10⁶, unseen flow",
        "{train_cpu_seconds:.0f} CPU-s of training",
    ),
    Headline(
        "compression",
        "compression within a bound, equal bytes",
        "turbulence and cosmology, bounds of 10 % to 0.01 % of the range",
    ),
    Headline(
        "forecast_families",
        "forecast of a series, 8 steps",
        "7 series: Lorenz, waves, sea-surface temperature",
        "up to {cpu_seconds[ersst]:.0f} CPU-s of choosing",
    ),
    Headline(
        "search_quality",
        "search: median regret after 60 trials",
        "3 functions, 20 seeds that also shift the optimum",
        "{ms_per_proposal_120:.0f} ms per proposal",
    ),
)
HEADS = (
    "task",
    "scitoolkit, where its gain is smallest",
    "strongest rival there",
    "gain, all cases",
    "what is lost",
    "measured",
)
LOST_HEADS = (
    "quantity",
    "cases lost",
    "scitoolkit, where it loses most",
    "better there",
    "loss, all cases lost",
    "measured",
)
TRAINED = re.compile("LSTM|GRU|network|reservoir", re.IGNORECASE)  # all else is a closed form


@dataclass(frozen=True)
class Result:
    """A case of a comparison, with its strongest rival and the gain over it."""

    comparison: Comparison
    case: Case
    rival: str
    gain: float

    def ours(self, quantity: bool = False) -> str:
        """Return case and value, with the name of the quantity where a row pools several."""
        names = [self.comparison.quantity] if quantity else []
        names += [self.case.name] if self.case.name else []
        value = self.comparison.value.format(self.case.ours)
        return f"{', '.join(names)}: {value}" if names else value

    def theirs(self) -> str:
        return f"{self.rival}: {self.comparison.value.format(self.case.rivals[self.rival])}"

    def lost(self) -> bool:
        return self.comparison.kind.lost(self.gain)


def results(comparison: Comparison, figures: Mapping[str, Any]) -> list[Result]:
    """Return every case of a comparison, the smallest gain first."""
    cases, _ = comparison.read(figures)
    ordered = [Result(comparison, case, *case.strongest(comparison.kind)) for case in cases]
    return sorted(ordered, key=lambda result: result.gain)


def pooled(benchmark: str) -> list[Comparison]:
    """Return the comparisons of a benchmark that share its headline, none where it has none."""
    of_it = [comparison for comparison in COMPARISONS if comparison.benchmark == benchmark]
    first = of_it[0].kind if of_it else None
    return [c for c in of_it if c.kind is first or (first and c.kind.pool == first.pool != "")]


def gains(benchmark: str, figures: Mapping[str, Any]) -> tuple[Result, str]:
    """Return the smallest gain of a benchmark and the words for the range over all its cases."""
    members = pooled(benchmark)
    ordered = sorted((r for c in members for r in results(c, figures)), key=lambda r: r.gain)
    return ordered[0], members[0].kind.range(ordered[0].gain, ordered[-1].gain)


def losses(benchmark: str, figures: Mapping[str, Any]) -> list[list[Result]]:
    """Return the cases in which something else is better, those of a comparison together."""
    of_it = [comparison for comparison in COMPARISONS if comparison.benchmark == benchmark]
    lost = [[r for r in results(c, figures) if r.lost()] for c in of_it]
    return [cases for cases in lost if cases]


def measured(figures: Mapping[str, Any], tolerance: int = 1) -> str:
    """Return date, processor and load of a result, marked when the code is newer."""
    machine = figures.get("machine", figures)
    processor = re.sub(r"\(R\)|Processor", "", str(machine.get("processor", ""))).strip()
    load = machine.get("load")
    where = [processor or "processor not stored"]
    where += [f"load {load:.1f}"] if load is not None else ["load not stored"]
    old = releases_since(figures) > tolerance
    return f"{figures['date']}{OLD if old else ''}, {', '.join(where)}"


def releases_since(figures: Mapping[str, Any]) -> int:
    """Return how many releases of the package were made after a result was measured."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[([0-9.]+)\] - (\d{4}-\d\d-\d\d)", text, re.MULTILINE)
    version = figures.get("version")
    if version in dict(releases):
        return [name for name, _ in releases].index(version)
    day = date.fromisoformat(figures["date"])
    return sum(date.fromisoformat(released) > day for _, released in releases)


def winner(figures: Mapping[str, Any]) -> str:
    """Return the words for winners that are closed forms, empty where a file names no winner."""
    names = figures.get("winners", {"": figures["model"]} if "model" in figures else {})
    closed = [name for name in names.values() if not TRAINED.search(name)]
    if not closed:
        return ""
    return f"; a closed form won in {len(closed)} of {len(names)} cases"


def row(headline: Headline, figures: Mapping[str, Any]) -> list[str]:
    """Return the cells of one headline."""
    worst, gain = gains(headline.benchmark, figures)
    lost = [headline.note.format(**figures)] if headline.note else []
    for cases in losses(headline.benchmark, figures):
        comparison = cases[0].comparison
        words = comparison.kind.range(cases[0].gain, cases[-1].gain)
        total = len(comparison.read(figures)[0])
        lost.append(
            f"{comparison.quantity}: {words} than {cases[0].rival} ({len(cases)} of {total} cases)"
        )
    return [
        f"**{headline.task}**: {headline.data}",
        worst.ours(quantity=len(pooled(headline.benchmark)) > 1),
        worst.theirs(),
        gain + winner(figures),
        "; ".join(lost) or "nothing that was measured",
        measured(figures, headline.tolerance),
    ]


def lost_rows() -> list[list[str]]:
    """Return a row for every comparison in which something else is better in some case."""
    rows = []
    for benchmark in dict.fromkeys(comparison.benchmark for comparison in COMPARISONS):
        figures = stored(benchmark)
        for cases in losses(benchmark, figures) if figures else ():
            comparison = cases[0].comparison
            rows.append(
                [
                    f"{comparison.quantity} (`{benchmark}`)",
                    f"{len(cases)} of {len(comparison.read(figures)[0])}",
                    cases[0].ours(),
                    cases[0].theirs(),
                    comparison.kind.range(cases[0].gain, cases[-1].gain),
                    measured(figures),
                ]
            )
    return rows
