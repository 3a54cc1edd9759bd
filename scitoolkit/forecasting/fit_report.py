"""Report of a fit: what its record says about the selection, the network and the modes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.core.results import Lines, Series, Table, display_unit, number


def with_unit_of(text: str, unit: str) -> str:
    """Return a title with the unit of its values in brackets, if there is one."""
    shown = display_unit(unit)
    return f"{text} [{shown}]" if shown else text


def chosen_sentence(record: Mapping[str, Any]) -> str:
    """Return a sentence with the selected forecaster and the best alternative."""
    entries = record["entries"]
    winner = next(e for e in entries if e["label"] == record["winner"])
    candidates = [e for e in entries if e is not winner and e["stable"] and e["closed_form"]]
    key = "validation"
    others = candidates
    if winner["blocked"] is not None and any(e["blocked"] is not None for e in candidates):
        key, others = "blocked", [e for e in candidates if e["blocked"] is not None]
    if not others:
        return f"Forecaster: {winner['label']}."
    second = min(others, key=lambda e: e[key])
    gain = 100 * (1 - winner[key] / second[key])
    return (
        f"Chosen on validation: {winner['label']}, with an error {abs(gain):.2g} % "
        f"{'below' if gain >= 0 else 'above'} that of the best alternative, {second['title']}."
    )


def network_sentences(record: Mapping[str, Any]) -> list[str]:
    """Return a sentence if the network does not improve the forecast, else nothing."""
    network = record.get("network")
    if network is None or network["delivered"]:
        return []
    return [
        "The network is not used because it does not improve the forecast on validation: RMSE "
        f"{network['validation_full']:.4g} with its full correction, "
        f"{network['validation_without']:.4g} without."
    ]


def selection_table(record: Mapping[str, Any], unit: str) -> Table:
    """Return the scores by which the forecaster was selected, the best candidate first."""
    entries = sorted(
        record["entries"],
        key=lambda e: e["validation"] if e["blocked"] is None else e["blocked"],
    )
    rows: list[list[Any]] = [
        [
            e["label"],
            None if e["blocked"] is None else number(e["blocked"]),
            number(e["validation"]),
            "yes" if e["stable"] else "no",
        ]
        for e in entries
    ]
    left_out = "; ".join(f"{name}: {why}" for name, why in record["refused"].items())
    return Table(
        title=with_unit_of("Selection on the train and validation splits: RMSE", unit),
        columns=["candidate", "blocks of train + validation", "validation split", "stable"],
        rows=rows,
        best="min",
        note=f"Chosen: {record['winner']}. Each row is the best candidate of its family. "
        "Closed forms are compared by blocked cross-validation over train + validation, and "
        "their long rollouts must stay in the range of the record. Networks are judged by "
        "their correction of the best closed form (fitted to the train split) on the "
        f"validation split.{_factors(record)} The selected closed form was then refitted to "
        "train + validation." + (f" Excluded: {left_out}." if left_out else ""),
    )


def damped_anomaly_table(record: Mapping[str, Any], unit: str) -> Table:
    """Return the scores of the settings of the damped anomaly."""
    rows: list[list[Any]] = [[n, number(v)] for n, v in record["base_candidates"]]
    return Table(
        title=with_unit_of(
            "Settings of the damped anomaly: RMSE of blocked cross-validation", unit
        ),
        columns=["settings", "all leads"],
        rows=rows,
        best="min",
        note="Blocks of train + validation, separated by gaps.",
    )


def pod_table(record: Mapping[str, Any], floor: float, unit: str) -> Table:
    """Return singular values and shares of variance of the modes.

    Args:
        record: of the fit.
        floor: truncation error on the test part.
        unit: of the field.
    """
    pod = record["pod"]
    share = np.cumsum(pod["variance_share"])
    rows: list[list[Any]] = [
        [k + 1, number(s), number(v), number(c)]
        for k, (s, v, c) in enumerate(
            zip(pod["singular_values"], pod["variance_share"], share, strict=True)
        )
    ]
    return Table(
        title="POD of the train split",
        columns=["mode", "singular value", "share of variance", "cumulative"],
        rows=rows[:20],
        note="Truncation error on train: "
        + _with_unit(pod["truncation_rmse_train"], unit)
        + f"; on test: {_with_unit(floor, unit)}.",
    )


def pod_spectrum(record: Mapping[str, Any]) -> Lines:
    """Return the shares of variance of the modes as a figure."""
    share = record["pod"]["variance_share"]
    return Lines(
        title="POD spectrum",
        x=[float(k + 1) for k in range(len(share))],
        x_label="mode",
        y_label="share of variance",
        series=[Series(label="train split", y=share)],
        log_y=True,
    )


def _factors(record: Mapping[str, Any]) -> str:
    network = record.get("network")
    if network is None:
        return ""
    factors = ", ".join(f"{f:.2f}" for f in network["factors"])
    return f" The correction is multiplied by (lead 1, 2, ...): {factors}."


def _with_unit(value: float, unit: str) -> str:
    return f"{value:.4g} {display_unit(unit)}".rstrip()
