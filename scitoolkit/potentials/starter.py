"""Starting configuration of a potential for given files of atoms."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.core.errors import DataError
from scitoolkit.core.starter import CommentedLines, DataToStart
from scitoolkit.io.atoms import LabelConfig
from scitoolkit.io.atoms_summary import AtomsSummary, summarize_atoms


def starter(data: DataToStart) -> str:
    """Return a short, commented configuration that trains a small MACE model on the files."""
    summary = summarize_atoms([Path(file) for file in data.files])
    if summary.energy is None:
        raise DataError(
            "frames without energy", where=", ".join(data.files), allowed="an energy for each frame"
        )
    lines = CommentedLines("A small MACE potential.", _about(summary))
    lines.key("domain", "potentials")
    lines.section("data", path=list(data.written), labels=_names(summary.labels) or None)
    lines.comment("  test: [FILE]", "errors are those of the validation part without it")
    lines.section("split", "share of the configurations that is held out", validation=0.1)
    lines.section(
        "model",
        "larger: channels, lmax_hidden",
        name="mace",
        cutoff=5.0,
        channels=16,
        lmax=2,
        lmax_hidden=1,
        correlation=2,
        radial_widths=[32, 32],
    )
    if summary.forces is None:
        lines.section("loss", "the data have no forces", start_pref_f=0, limit_pref_f=0)
    lines.section(
        "training",
        steps=1000,
        batch_size=2,
        optimizer={"name": "adam", "lr": 5e-3},
        schedule={"name": "exponential", "final_factor": 0.05, "hold_steps": 20},
        checkpoint={"every_epochs": None},
        log_every=20,
    )
    return lines.text()


def _about(found: AtomsSummary) -> str:
    low, high = found.atoms
    size = f"{low}" if low == high else f"{low} to {high}"
    labels = ["energy", *["forces"] * (found.forces is not None), *["virial"] * found.virial]
    return (
        f"frames: {found.frames}, atoms: {size}, species: {' '.join(found.species)}, "
        f"labels: {', '.join(labels)}"
    )


def _names(labels: LabelConfig) -> dict[str, str]:
    return {key: getattr(labels, key) for key in sorted(labels.model_fields_set)}
