"""The figures of forecasts-from-statsforecast.md, from the results of `forecast_calendars`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "forecasts-from-statsforecast.md"
BEGIN = "<!-- calendars: written by `python benchmarks/readme.py` -->"
END = "<!-- end of calendars -->"


def table() -> str:
    """Return the five series with the largest ratios, empty when nothing is stored."""
    figures = stored("forecast_calendars")
    if figures is None:
        return ""
    ratios = figures["ratios"]
    worst = sorted(ratios, key=lambda name: -ratios[name])[:5]
    lost = sum(ratio > 1 for ratio in ratios.values())
    return "\n".join(
        [
            "The error (RMSE) of `forecaster: auto` over that of the best of the eight on the "
            f"test part itself, which nobody knows before: {min(ratios.values()):.2f} to "
            f"{figures['over_best_statsforecast_max']:.2f}, median "
            f"{figures['over_best_statsforecast_median']:.2f}; it is above 1 for {lost} of "
            f"{figures['series']} series. The 90 % intervals cover "
            f"{100 * figures['coverage_min']:.1f} to {100 * figures['coverage_max']:.1f} % at each "
            "lead of each series. The series with the largest ratios:",
            "",
            "| series | ratio | ours | best of statsforecast |",
            "|---|---|---|---|",
            *(
                f"| {name} | {ratios[name]:.2f} | {figures['winners'][name]} | "
                f"{figures['best'][name]} |"
                for name in worst
            ),
        ]
    )
