"""The tables of GPU figures in docs/measured.md and README, written from `results/gpu_*.json`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gpu
from _places import ROOT

PAGE = ROOT / "docs" / "measured.md"
BEGIN = "<!-- gpu: written by `python benchmarks/readme.py` -->"
END = "<!-- end of gpu -->"
NOTHING = "No GPU has run this version yet, so no figure is given for one."
# figure, what was measured, against what, format of the figure
ROWS = (
    (
        "mace_speedup_float32",
        "MACE 128x0e+128x1o, 1,536 atoms, energy and forces, recorded step, float32",
        "the faster of mace-torch with cuEquivariance and with OpenEquivariance",
        "{:.2f} x as fast",
    ),
    (
        "mace_speedup_over_plain_float32",
        "the same",
        "mace-torch alone",
        "{:.2f} x as fast",
    ),
    (
        "mace_speedup_float64",
        "MACE, the same in float64",
        "the faster of mace-torch with cuEquivariance and with OpenEquivariance",
        "{:.2f} x as fast",
    ),
    (
        "se_e2_a_speedup_float64",
        "se_e2_a, 12,288 atoms, energy and forces, float64",
        "deepmd-kit's PyTorch without its compiled operators",
        "{:.2f} x as fast",
    ),
    (
        "se_e2_a_speedup_float32",
        "se_e2_a, 12,288 atoms, energy and forces, float32",
        "deepmd-kit's PyTorch without its compiled operators",
        "{:.2f} x as fast",
    ),
    (
        "tensor_product_forward_min",
        "seven tensor products of equivariant models, forward, the worst",
        "the faster of cuEquivariance and OpenEquivariance",
        "{:.2f} x as fast",
    ),
    (
        "tensor_product_backward_min",
        "seven tensor products with gradients, the worst",
        "the faster of cuEquivariance and OpenEquivariance",
        "{:.2f} x as fast",
    ),
    (
        "tensor_product_double_min",
        "seven tensor products with second gradients, the worst",
        "the faster of cuEquivariance and OpenEquivariance",
        "{:.2f} x as fast",
    ),
    (
        "tensor_product_mean",
        "geometric mean of these 21 tensor products",
        "the faster of cuEquivariance and OpenEquivariance",
        "{:.2f} x as fast",
    ),
    (
        "graph_speedup",
        "epoch of GCN and GAT on a whole graph of 2 M edges, the worse",
        "torch-geometric: edge list, CSR or torch.compile, the fastest",
        "{:.2f} x as fast",
    ),
    (
        "comet_memory_ratio",
        "compressed activations, 50 convolutions: memory",
        "all activations saved",
        "{:.1f} x less",
    ),
    (
        "comet_step_ratio",
        "compressed activations, 50 convolutions: time of a step",
        "all activations saved",
        "{:.2f} x as long",
    ),
    (
        "comet_step_over_checkpointing",
        "compressed activations, 50 convolutions: time of a step",
        "checkpointing",
        "{:.2f} x as long",
    ),
    (
        "feed_share",
        "U-Net on 256 x 256, batch 16, bfloat16, from HDF5: steps per second",
        "the same with the data on the device",
        "{:.3f} of it",
    ),
)
DIGITS = 1e-3  # losses that differ by less from the CPU's are called equal


def _cells(measured: dict[str, Any], names: tuple[str, ...] | None = None) -> list[str]:
    rows = ["| job | compared with | result |", "|---|---|---|"]
    for name, what, against, form in ROWS:
        if names is not None and name not in names:
            continue
        value = form.format(measured[name]) if name in measured else "not measured"
        rows.append(f"| {what} | {against} | {value} |")
    return rows


def table() -> str:
    """Return the figures and the jobs of the newest measurement, or that there is none."""
    measured = gpu.figures(gpu.newest())
    if not measured:
        return NOTHING
    lines = [f"On {measured['measured_on']}, by `make gpu`:", "", *_cells(measured), ""]
    lines += [
        "Jobs ran beside each other, those on the CPU with 4 threads: their speed-ups are rough.",
        "",
    ]
    lines += ["| job of a workflow | on the GPU | loss, relative to the CPU's | speed-up |"]
    lines += ["|---|---|---|---|"]
    for name, row in measured["jobs"].items():
        first = row.get("first_loss_difference")
        loss = "not compared" if first is None else f"differs by {first:.0e}"
        if first is not None and first <= DIGITS:
            loss = f"equal, {first:.0e}"
        speed = f"{row['speedup']:.1f} x" if "speedup" in row else ""
        lines.append(f"| {name} | {row['state']} | {loss} | {speed} |")
    return "\n".join(lines)


def _short() -> str:
    measured = gpu.figures(gpu.newest())
    if not measured:
        return NOTHING
    # Each row that was measured, those that lose included.
    names = tuple(name for name, *_ in ROWS if name in measured)
    return "\n".join([f"On {measured['measured_on']}:", "", *_cells(measured, names)])


README = SimpleNamespace(PAGE=ROOT / "README.md", BEGIN=BEGIN, END=END, table=_short)
