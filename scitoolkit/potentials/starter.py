"""Starting configuration of a potential for given files of atoms."""

from __future__ import annotations

from scitoolkit.core.starter import DataToStart, Lines


def starter(data: DataToStart) -> str:
    """Return a short, commented configuration that trains a small MACE model on the files."""
    lines = Lines("A small MACE potential; the species are found in the data.")
    lines.key("domain", "potentials")
    lines.section("data", path=list(data.written))
    lines.comment("  test: [FILE]", "errors are those of the validation part without it")
    lines.section("split", "share of the configurations that is held out", validation=0.1)
    lines.section("model", "larger: channels, lmax_hidden", name="mace", cutoff=5.0, channels=16,
                  lmax=2, lmax_hidden=1, correlation=2, radial_widths=[32, 32])  # fmt: skip
    lines.section(
        "training", steps=1000, batch_size=2, optimizer={"name": "adam", "lr": 5e-3},
        schedule={"name": "exponential", "final_factor": 0.05, "hold_steps": 20},
        checkpoint={"every_epochs": None}, log_every=20,
    )  # fmt: skip
    return lines.text()
