"""The tables of docs/how-to/gauss-newton.md, written from the results of `second_order`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "gauss-newton.md"
BEGIN = "<!-- second order: written by `python benchmarks/readme.py` -->"
END = "<!-- end of second order -->"
NAMES = {
    "forecast": "forecast read-out (sea temperature)",
    "poisson": "Poisson equation by collocation",
    "potential": "potential of acetylacetone, 10 units a layer",
}


def table() -> str:
    """Return the tables, empty when nothing is stored."""
    figures = stored("second_order")
    if figures is None:
        return ""
    rows = {NAMES[name]: fit for name, fit in figures["fits"].items()}
    rows["the same potential, 6 units a layer"] = figures["narrow_potential"]
    lines = [
        "CPU time on one thread, `python benchmarks/run.py second_order` on "
        f"{figures['date']}; Adam with a cosine schedule and the best of three rates, "
        "`scipy.optimize.least_squares` with our Jacobian and Adam's time:",
        "",
        "| fit | parameters, residuals | Adam's best loss | Gauss-Newton reaches it in | "
        "Gauss-Newton's last loss | least_squares |",
        "|---|---|---|---|---|---|",
    ]
    for name, fit in rows.items():
        ratio = fit["time_ratio"]
        reached = "never" if ratio is None else f"{ratio:.2f} of Adam's time"
        lines.append(
            f"| {name} | {fit['parameters']}, {fit['residuals']} | {fit['adam_loss']:.1e} in "
            f"{fit['adam_seconds']:.1f} s | {reached} | {fit['gauss_newton_loss']:.1e} | "
            f"{fit['least_squares']['loss']:.1e} ({fit['least_squares']['method']}) |"
        )
    return "\n".join(lines)
