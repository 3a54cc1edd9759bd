"""Dataset card of a generated campaign: equations, scheme, seeds and invariants."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from scitoolkit.core.dataset_card import FILE_NAME, DatasetCard, FileEntry, Provenance, sha256
from scitoolkit.core.draw import Prior
from scitoolkit.core.files import write_atomic
from scitoolkit.generators.config import GenerateConfig
from scitoolkit.generators.workers import Record

SAMPLES = "samples.csv"


def write_cards(folder: Path, config: GenerateConfig, records: Sequence[Record]) -> None:
    """Write README.md, dataset.yaml and samples.csv of a campaign.

    Args:
        folder: the campaign's folder, with the samples' files.
        config: what was generated.
        records: of the finished samples, by number.
    """
    write_atomic(folder / SAMPLES, _table(config, records))
    write_atomic(folder / "README.md", _text(folder, config, records))
    card = DatasetCard(
        name=folder.name,
        title=f"{len(records)} samples of the generator {config.generator.name}",
        licence="made here; free",
        provenance=Provenance(
            source=f"scitoolkit generate, generator {config.generator.name}",
            citation=config.generator.reference,
            processing=f"{config.generator.equations_line()}; {config.generator.scheme}",
        ),
        make="scitoolkit generate config.yaml, the configuration next to this campaign",
        files=[
            FileEntry(path=r.file, sha256=sha256(folder / r.file), size=r.size) for r in records
        ],
    )
    text = yaml.safe_dump(card.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    write_atomic(folder / FILE_NAME, text)


def worst_invariants(records: Iterable[Record]) -> dict[str, float]:
    """Return the largest drift of each invariant over the samples."""
    worst: dict[str, float] = {}
    for record in records:
        for name, drift in record.invariants.items():
            worst[name] = max(drift, worst.get(name, 0.0))
    return worst


def _table(config: GenerateConfig, records: Sequence[Record]) -> str:
    """Return samples.csv: number, file, seed, parameters, drifts, error and CPU seconds."""
    drawn, drifts = list(config.draw.parameters), list(worst_invariants(records))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [*drawn, *(f"drift_{d}" for d in drifts), "error", "seconds"]
    writer.writerow(["index", "file", "seed", *columns])
    for r in records:
        writer.writerow(
            [
                r.index,
                r.file,
                r.seed,
                *(repr(r.parameters[p]) for p in drawn),
                *(f"{r.invariants[d]:.3g}" for d in drifts),
                f"{r.accuracy['error']:.3g}" if r.accuracy else "",
                f"{r.seconds:.3f}",
            ]
        )
    return out.getvalue()


def _text(folder: Path, config: GenerateConfig, records: Sequence[Record]) -> str:
    generator = config.generator
    drifts = _rows(worst_invariants(records), generator.invariant_bounds())
    settings = "\n".join(
        f"| `{key}` | {value} | {generator.parameters.get(key, '')} |"
        for key, value in generator.model_dump(mode="json").items()
    )
    drawn = "\n".join(
        f"- `{key}` ({generator.parameters[key]}): {_prior(prior)}"
        for key, prior in config.draw.parameters.items()
    )
    notes = "\n".join(
        f"- sample {r.index}: {note}" for r in records for note in (*r.notes, *r.missed)
    )
    return f"""# {folder.name}

{len(records)} samples of `{generator.name}`; one file per sample, listed in `{SAMPLES}`.

- Equations: {generator.equations_line()}
- Scheme: {generator.scheme} ({generator.reference})
- Drawn by {config.draw.method}, {_seeds(config)}:
{drawn or "- nothing; samples differ in their seed"}

| setting | value | unit |
|---|---|---|
{settings}

{_errors(records)}

Invariants, largest drift over all samples, and its bound for the scheme:

| invariant | drift | bound |
|---|---|---|
{drifts}
{f"{chr(10)}Notes{chr(10)}{chr(10)}{notes}{chr(10)}" if notes else ""}"""


def _rows(drifts: Mapping[str, float], bounds: Mapping[str, float]) -> str:
    return "\n".join(f"| {k} | {v:.2g} | {bounds[k]:.2g} |" for k, v in drifts.items())


def _errors(records: Sequence[Record]) -> str:
    """Return the errors of the samples, and how they were measured, in a sentence."""
    errors = sorted(float(r.accuracy["error"]) for r in records if r.accuracy)
    if not errors:
        return "Errors of the samples are not measured."
    first = next(r.accuracy for r in records if r.accuracy)
    return (
        f"Error of the samples: median {errors[len(errors) // 2]:.2g}, largest {errors[-1]:.2g}, "
        f"tolerance {first['tolerance']:.2g}; {first['method']}."
    )


def _seeds(config: GenerateConfig) -> str:
    return f"seed {config.seed}" + ("; the samples' own seeds are given" if config.seeds else "")


def _prior(prior: Prior | list[float]) -> str:
    if isinstance(prior, list):
        return "one of " + ", ".join(f"{v:g}" for v in prior)
    normal = f", mean {prior.mean:g}, std {prior.std:g}" if prior.distribution == "normal" else ""
    return f"{prior.distribution.replace('_', '-')} in [{prior.low:g}, {prior.high:g}]{normal}"
