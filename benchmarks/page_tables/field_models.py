"""The table of docs/how-to/choose-a-field-model.md, from the results of `field_models`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "choose-a-field-model.md"
BEGIN = "<!-- field models: written by `python benchmarks/readme.py` -->"
END = "<!-- end of field models -->"
PROBLEMS = {
    "kuramoto_sivashinsky": "Kuramoto-Sivashinsky (1-D, 128)",
    "gray_scott": "Gray-Scott (2-D, periodic)",
    "rayleigh_benard": "Rayleigh-Bénard (2-D, walls)",
}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    found = stored("field_models")
    if found is None:
        return ""
    names = [name for name in PROBLEMS if name in found]
    families = dict.fromkeys(f for name in names for f in found[name] if f != "persistence")
    lines = [
        f"VRMSE after one step / mean over steps 13 to 30 of rollouts / CPU ms of a step; "
        f"{found['fit_cpu_seconds']:.0f} CPU seconds of training each, one thread "
        f"({found['processor']}, {found['date']}). The smallest error of a column is bold.",
        "",
        "| `model.name` | " + " | ".join(PROBLEMS[n] for n in names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for family in ("persistence", *families):
        cells = [_cell(found[name], family) for name in names]
        shown = "nothing changes" if family == "persistence" else f"`{family}`"
        lines.append(f"| {shown} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(problem: dict, family: str) -> str:
    """Return both errors and the time of a family, the best errors in bold."""
    scores = problem[family]
    shown = [_best(problem, family, key) for key in ("one_step", "rollout")]
    return " / ".join([*shown, f"{scores['step_ms']:.1f}"] if "step_ms" in scores else shown)


def _best(problem: dict, family: str, key: str) -> str:
    """Format an error, in bold if no other family has a smaller one."""
    text = f"{problem[family][key]:.2g}"
    smallest = min(each[key] for each in problem.values())
    return f"**{text}**" if problem[family][key] == smallest else text
