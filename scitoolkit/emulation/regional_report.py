"""Scores, tables and a figure of regions and of anomalies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scitoolkit.core.results import Multiples, Series, Table, number
from scitoolkit.emulation.evaluation import NORMAL, OWN, PERSISTENCE, Evaluation
from scitoolkit.emulation.regions import WHOLE, RegionalScores
from scitoolkit.emulation.variables import Variable
from scitoolkit.surrogate.sections import against_steps, curves

USEFUL = 0.6
"""Anomaly correlation below which a forecast of the weather is of no use (Hollingsworth et al.
1980, Mon. Weather Rev. 108, 1126)."""


def scores(evaluation: Evaluation, one_step: RegionalScores) -> dict[str, float | None]:
    """Return {name: score}: RMSE by region, and ACC, of one step and of rollouts."""
    out: dict[str, float | None] = {}
    for region in one_step.regions:
        ending = "" if region.name == WHOLE else f"_{region.name.replace(' ', '_')}"
        for name in one_step.fields:
            if ending:
                out[f"rmse_{name}{ending}"] = _number(one_step.rmse(region.name, OWN, name))
            # The error of the whole grid is in the other metrics already; its correlation is not.
            for key, step, of in _instants(evaluation, one_step):
                if evaluation.climatology is not None:
                    acc = of.acc(region.name, OWN, name, step)
                    out[f"{key}acc_{name}{ending}"] = _number(acc)
    if evaluation.climatology is not None and evaluation.has_rollout:
        for name in one_step.fields:
            out[f"useful_steps_{name}"] = _useful(evaluation, name)
    return out


def _instants(
    evaluation: Evaluation, one_step: RegionalScores
) -> list[tuple[str, int, RegionalScores]]:
    """Return (beginning of the score's name, step from 0, scores) of what is listed."""
    listed = [("", 0, one_step)]
    if evaluation.has_rollout and evaluation.regional_rollouts is not None:
        length = _length(evaluation)
        steps = sorted({8, length} & set(range(1, length + 1)))
        listed += [(f"rollout{step}_", step - 1, evaluation.regional_rollouts) for step in steps]
    return listed


def tables(evaluation: Evaluation, one_step: RegionalScores) -> list[Table]:
    """Return the table of regions, and of correlations by step if there are rollouts."""
    length = _length(evaluation) if evaluation.has_rollout else 0
    further = evaluation.regional_rollouts if length else None
    rows: list[list[Any]] = []
    for name in one_step.fields:
        for region in one_step.regions:
            row = [f"{name}, {region.name}", _number(one_step.rmse(region.name, OWN, name))]
            if evaluation.climatology is not None:
                # A forecast worse than the climatology is worthless, whatever its correlation.
                row.append(_number(one_step.rmse(region.name, NORMAL, name)))
                row.append(_number(one_step.acc(region.name, OWN, name)))
            if further is not None:
                row.append(_number(further.rmse(region.name, OWN, name, length - 1)))
                if evaluation.climatology is not None:
                    row.append(_number(further.acc(region.name, OWN, name, length - 1)))
            rows.append(row)
    columns = ["output, region", "RMSE"]
    columns += ["RMSE of the climatology", "ACC"] if evaluation.climatology is not None else []
    columns += [f"RMSE, step {length}"] if length else []
    columns += [f"ACC, step {length}"] if length and evaluation.climatology is not None else []
    made = [Table(title="Scores by region", columns=columns, rows=rows, note=_note(evaluation))]
    if further is not None and evaluation.climatology is not None:
        made.append(_by_step(further, length))
    return made


def _note(evaluation: Evaluation) -> str:
    if evaluation.climatology is None:
        return "Means over cells are weighted by their areas."
    of = "all samples"
    if evaluation.climatology.by == "day_of_year":
        window = evaluation.climatology.window
        of = "the same day of the year and time of the day"
        of += f", over {window} days" if window > 1 else ""
    return (
        "Means over cells are weighted by their areas. ACC: correlation of anomalies from the "
        f"climatology, which is the mean of the training part over {of}."
    )


def _by_step(further: RegionalScores, length: int) -> Table:
    shown = sorted({1, 2, 4, 8, length} & set(range(1, length + 1)))
    rows: list[list[Any]] = []
    for name in further.fields:
        for forecast in (OWN, PERSISTENCE):
            values = [_number(further.acc(WHOLE, forecast, name, step - 1)) for step in shown]
            rows.append([f"{name}, {forecast}", *values])
    return Table(
        title="ACC of rollouts",
        columns=["output, forecast", *(f"step {step}" for step in shown)],
        rows=rows,
        best="max",
    )


def correlations(evaluation: Evaluation, shown: Sequence[Variable]) -> Multiples:
    """Return the anomaly correlation against the number of steps."""
    further, length = evaluation.regional_rollouts, _length(evaluation)
    assert further is not None

    useful = f"useful above {USEFUL:g}"

    def lines(name: str) -> list[Series]:
        values: dict[str, list[float | None]] = {
            forecast: [further.acc(WHOLE, forecast, name, k) for k in range(length)]
            for forecast in (OWN, PERSISTENCE)
        }
        values[useful] = [USEFUL] * length
        return curves(values, baselines=[PERSISTENCE], references=[useful])

    panels = [
        against_steps(variable.name, "ACC", lines(variable.name))
        for variable in shown
        if variable.is_field
    ]
    return Multiples(title="Anomaly correlation against the number of steps", panels=panels)


def _useful(evaluation: Evaluation, name: str) -> int:
    """Return the number of initial steps with a correlation of at least `USEFUL`."""
    assert evaluation.regional_rollouts is not None
    for step in range(_length(evaluation)):
        acc = evaluation.regional_rollouts.acc(WHOLE, OWN, name, step)
        # None where a frame has no anomalies. NaN ends the count, too.
        if acc is None or not acc >= USEFUL:
            return step
    return _length(evaluation)


def _length(evaluation: Evaluation) -> int:
    return len(evaluation.rollouts[OWN][evaluation.outputs[0]])


def _number(value: float | None) -> float | None:
    return None if value is None else number(value)
