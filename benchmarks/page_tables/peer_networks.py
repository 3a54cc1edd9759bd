"""A table of docs/how-to/choose-a-field-model.md, from the results of `emulation_peers`."""

from __future__ import annotations

from typing import Any

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "choose-a-field-model.md"
BEGIN = "<!-- networks of peers: written by `python benchmarks/readme.py` -->"
END = "<!-- end of networks of peers -->"
PROBLEMS = {
    "kuramoto_sivashinsky": "Kuramoto-Sivashinsky (1-D)",
    "decaying_turbulence": "decaying turbulence",
    "rayleigh_benard": "Rayleigh-Bénard",
    "shallow_water": "shallow water, sphere",
}
MODELS = {
    "scitoolkit": "scitoolkit: `fno` with AdamW (first and last), `unet` with `patch: 2`",
    "fno": "neuraloperator FNO",
    "tfno": "neuraloperator TFNO",
    "unet_classic": "the Well's U-Net",
    "unet_convnext": "the Well's ConvNeXt U-Net",
    "physicsnemo_fno": "PhysicsNeMo FNO",
    "physicsnemo_afno": "PhysicsNeMo AFNO",
}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("emulation_peers")
    if figures is None:
        return ""
    names = [name for name in PROBLEMS if name in figures]
    lines = [
        f"VRMSE after one step / mean over steps 13 to 30 of rollouts, after "
        f"{figures['fit_cpu_seconds']:g} CPU seconds of training each at the best of three rates, "
        f"selected in runs of {figures['trial_cpu_seconds']:g} (one run each, one thread, "
        f"{figures['machine']['processor']}, {figures['date']}). The smallest error of a column is "
        "bold.",
        "",
        "| network | " + " | ".join(PROBLEMS[name] for name in names) + " |",
        "|---|" + "---|" * len(names),
    ]
    scores = {n: {"persistence": figures[n]["persistence"], **figures[n]["models"]} for n in names}
    for model, shown in {"persistence": "nothing changes", **MODELS}.items():
        cells = [_cell(scores[name], model) for name in names]
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(scores: dict[str, dict[str, Any]], model: str) -> str:
    """Return both errors of a network on a problem, the smallest of all networks in bold."""
    if model not in scores:
        return ""
    texts = []
    for key in ("one_step", "rollout"):
        text = f"{scores[model][key]:.2g}"
        best = min(row[key] for row in scores.values())
        texts.append(f"**{text}**" if scores[model][key] == best else text)
    return " / ".join(texts)
