"""Tables and figures of an evaluation, in the units of the file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.core.results import (
    Figure,
    Lines,
    Maps,
    Multiples,
    Panel,
    Results,
    Table,
    Verdict,
    number,
)
from scitoolkit.emulation import regional_report as regional
from scitoolkit.emulation.climate import LongRollout, spectrum_factor
from scitoolkit.emulation.evaluation import LINEAR, OWN, PERSISTENCE, REPEATED, Evaluation
from scitoolkit.emulation.intervals import IntervalScores
from scitoolkit.emulation.motion import middle_plane
from scitoolkit.emulation.variables import Variable
from scitoolkit.surrogate.sections import (
    against_steps,
    beside_truth,
    curves,
    error_table,
    spectrum_lines,
)

MAX_FIGURES = 6
ROWS = 4  # outputs in a figure of maps


def make(evaluation: Evaluation, workflow: str) -> tuple[Results, xr.Dataset | None]:
    """Return the results of an evaluation and the fields of its maps."""
    tables = [_one_step(evaluation)]
    if evaluation.has_rollout:
        tables += [_horizons(evaluation), _rollout_table(evaluation)]
    if evaluation.regional is not None:
        tables += regional.tables(evaluation, evaluation.regional)
    if evaluation.by_lead:
        tables.append(_lead_table(evaluation))
    if evaluation.interval_scores is not None:
        tables.append(_interval_table(evaluation, evaluation.interval_scores))
    if evaluation.long is not None:
        tables.append(_climate_table(evaluation, evaluation.long))
    fields = _fields(evaluation)
    figures: list[Figure] = []
    if fields is not None:
        figures += _maps(evaluation, fields)
    if evaluation.motion is not None:
        figures.append(evaluation.motion.figure())
    if fields is None:
        figures += _profiles(evaluation)
    shown = evaluation.layout.outputs[:MAX_FIGURES]
    if evaluation.has_rollout:
        panels = [_rollout_lines(evaluation, variable) for variable in shown]
        figures.append(Multiples(title="Rollout error against the number of steps", panels=panels))
    if evaluation.climatology is not None and evaluation.has_rollout:
        figures.append(regional.correlations(evaluation, shown))
    spectra = [_spectrum_lines(evaluation, v) for v in shown if v.name in evaluation.spectra]
    if spectra:
        dim = list(evaluation.layout.grid)[evaluation.spectral_axis or 0]
        figures.append(Multiples(title=f"Power spectra along {dim}", panels=spectra))
    if evaluation.motion is not None:
        moving = evaluation.motion.dataset()
        fields = moving if fields is None else fields.merge(moving)
    scores = metrics(evaluation)
    return Results(
        title=f"{workflow}: {', '.join(evaluation.outputs)} from "
        f"{', '.join(v.name for v in evaluation.layout.inputs)}",
        verdict=_verdict(evaluation),
        summary=_summary(evaluation, scores),
        metrics=scores,
        units={f"rmse_{v.name}": v.units for v in evaluation.layout.outputs if v.units},
        tables=tables,
        figures=figures,
    ), fields


def metrics(evaluation: Evaluation) -> dict[str, float | int | str | None]:
    """Return {name: score} of an evaluation."""
    own = evaluation.one_step[OWN]
    scores: dict[str, float | int | str | None] = {}
    for name in evaluation.outputs:
        scores[f"rmse_{name}"] = number(own[name])
    for name in evaluation.outputs:
        deviation = evaluation.deviation[name]
        scores[f"vrmse_{name}"] = number(own[name] / deviation) if deviation else None
    if PERSISTENCE in evaluation.one_step:
        for name, ratio in evaluation.ratio(evaluation.one_step, PERSISTENCE).items():
            scores[f"one_step_over_persistence_{name}"] = number(ratio)
        for name, ratio in evaluation.ratio(evaluation.plain, PERSISTENCE).items():
            scores[f"one_step_over_persistence_unweighted_{name}"] = number(ratio)
    if LINEAR in evaluation.one_step and PERSISTENCE in evaluation.one_step:
        for name in evaluation.outputs:
            baseline = evaluation.one_step[PERSISTENCE][name]
            if baseline > 0:
                # Small where a step is short against the changes: an emulator has to be compared
                # with this baseline then, which persistence makes look good.
                ratio = evaluation.one_step[LINEAR][name] / baseline
                scores[f"linear_over_persistence_{name}"] = number(ratio)
    if evaluation.has_rollout:
        _rollout_scores(evaluation, scores)
    if evaluation.regional is not None:
        scores |= regional.scores(evaluation, evaluation.regional)
    for lead, errors in evaluation.by_lead.items():
        for key, baseline in (("persistence", PERSISTENCE), ("repeated_steps", REPEATED)):
            if baseline in errors:
                ratios = evaluation.ratio(errors, baseline)
                scores |= {f"lead{lead}_over_{key}_{n}": number(r) for n, r in ratios.items()}
    if evaluation.interval_scores is not None:
        scores |= _interval_scores(evaluation.interval_scores)
    if evaluation.long is not None:
        scores |= climate_scores(evaluation, evaluation.long)
    scores["test_samples"] = evaluation.num_samples
    return scores


def _interval_scores(scores_of: Mapping[str, IntervalScores]) -> dict[str, float | None]:
    coverage = [share for scores in scores_of.values() for share in scores.coverage]
    ratios = _over_mae(scores_of, "crps")
    out = {
        "coverage_min": number(min(coverage)),
        "coverage_max": number(max(coverage)),
        "crps_over_mae_max": number(max(ratios)) if ratios else None,
    }
    skill = [ratio for score in scores_of.values() for ratio in score.spread_over_error]
    if any(skill):  # one member has no spread, and its CRPS is its absolute error
        ratios = _over_mae(scores_of, "members_crps")
        out |= {
            "spread_over_error_min": number(min(skill)),
            "spread_over_error_max": number(max(skill)),
            "members_crps_over_mae_max": number(max(ratios)) if ratios else None,
        }
    own = [c for score in scores_of.values() for c in score.members_coverage if c is not None]
    if own:
        out |= {"members_coverage_min": number(min(own)), "members_coverage_max": number(max(own))}
    return out


def _over_mae(scores: Mapping[str, IntervalScores], which: str) -> list[float]:
    """Return a CRPS over the mean absolute error of the mean, for all outputs and steps."""
    return [
        crps / mae
        for of_output in scores.values()
        for crps, mae in zip(getattr(of_output, which), of_output.mae, strict=True)
        if mae
    ]


def _interval_table(evaluation: Evaluation, scores: Mapping[str, IntervalScores]) -> Table:
    settings = evaluation.config.uncertainty
    assert settings is not None
    shown = sorted({1, (settings.steps + 1) // 2, settings.steps})
    rows: list[list[float | int | str | None]] = [
        [
            f"{name}, step {step}",
            of_output.coverage[step - 1],
            of_output.width[step - 1],
            of_output.crps[step - 1],
            of_output.mae[step - 1],
            of_output.spread_over_error[step - 1],
            of_output.members_crps[step - 1],
            of_output.members_coverage[step - 1],
        ]
        for name, of_output in scores.items()
        for step in shown
    ]
    return Table(
        title=f"Intervals of nominal coverage {settings.coverage:g}, {settings.members} members",
        columns=[
            "output",
            "coverage",
            "mean width",
            "CRPS",
            "mean absolute error",
            "spread / error",
            "CRPS of the members",
            "coverage of the members",
        ],
        rows=rows,
        note="The last two are of the members without calibration. Their coverage, between the "
        "outermost members, needs many of them: 19 for 0.9.",
    )


def _lead_table(evaluation: Evaluation) -> Table:
    rows: list[list[Any]] = []
    for lead, errors in evaluation.by_lead.items():
        for forecast in (OWN, REPEATED, PERSISTENCE):
            if forecast in errors:
                values = (number(errors[forecast][n]) for n in evaluation.outputs)
                rows.append([f"{lead}, {forecast}", *values])
    left = [str(lead) for lead, errors in evaluation.by_lead.items() if not errors]
    return Table(
        title="RMSE by lead",
        columns=["lead, forecast", *map(_named, evaluation.layout.outputs)],
        rows=rows,
        note="Leads in samples; one step of the emulator unless stated otherwise."
        + (f" The test split is too short for {', '.join(left)}." if left else ""),
    )


def _rollout_scores(evaluation: Evaluation, scores: dict[str, Any]) -> None:
    length = len(evaluation.rollouts[OWN][evaluation.outputs[0]])
    for name in evaluation.outputs:
        # Unweighted means count all cells alike, as most published scores do.
        for label, table in (("", evaluation.rollouts), ("unweighted_", evaluation.plain_rollouts)):
            own, baseline = table[OWN][name], table[PERSISTENCE][name]
            # Step 8 is comparable between data sets of any length, the last shows the whole.
            for step in sorted({8, length} & set(range(1, length + 1))):
                ours, theirs = own[step - 1], baseline[step - 1]
                if ours is not None and theirs:
                    key = f"rollout{step}_over_persistence_{label}{name}"
                    scores[key] = number(ours / theirs)
    # The worst output decides: a rollout is used as a whole.
    for method in (PERSISTENCE, LINEAR):
        scores[f"steps_better_than_{method.replace(' ', '_')}"] = min(
            evaluation.steps_better(name, method) for name in evaluation.outputs
        )
    scores["rollout_steps"] = length


def _summary(evaluation: Evaluation, scores: dict[str, Any]) -> list[str]:
    errors = ", ".join(
        f"{n} {scores[f'vrmse_{n}']:.3g}"
        for n in evaluation.outputs
        if scores[f"vrmse_{n}"] is not None
    )
    lines = [f"Error over the truth's standard deviation (VRMSE), {_after(evaluation)}: {errors}."]
    if PERSISTENCE in evaluation.one_step:
        ratios = evaluation.ratio(evaluation.one_step, PERSISTENCE)
        if ratios:
            worst = max(ratios, key=lambda n: ratios[n])
            lowest = f"between {min(ratios.values()):.2g} and " if len(ratios) > 1 else ""
            lines.append(
                f"One step: {lowest}{ratios[worst]:.2g} ({worst}) times the error of persistence."
            )
    if evaluation.has_rollout:
        length = scores["rollout_steps"]
        lines.append(
            f"Rollouts of up to {length} steps from {evaluation.starts} starts: better than "
            f"persistence on every output for {scores['steps_better_than_persistence']} steps, "
            f"than linear extrapolation for {scores['steps_better_than_linear_extrapolation']}."
        )
    if evaluation.long is not None:
        lines.append(_survival(evaluation, evaluation.long, scores))
    return lines


def _survival(evaluation: Evaluation, long: LongRollout, scores: dict[str, Any]) -> str:
    finite, steps = scores["finite_steps"], scores["long_steps"]
    line = long.survival
    errors = [
        f"{n} {scores[f'climate_error_{n}']:.2g}"
        for n in evaluation.config.quantities
        if scores.get(f"climate_error_{n}") is not None
    ]
    if finite == steps and errors:
        line += f"; relative errors of its means: {', '.join(errors)}"
    if "cost_over_solver" in scores:
        line += f"; a step costs {scores['cost_over_solver']:.2g} of the solver's"
    return line + "."


def climate_scores(
    evaluation: Evaluation, long: LongRollout
) -> dict[str, float | int | str | None]:
    """Return {name: score} of a rollout beyond the data."""
    scores: dict[str, float | int | str | None] = {
        "long_steps": long.steps,
        "finite_steps": long.finite,
        "seconds_per_step": number(long.seconds),
    }
    if evaluation.config.solver_seconds:
        scores["cost_over_solver"] = number(long.seconds / evaluation.config.solver_seconds)
    if not long.climate.frames:
        return scores
    for name in evaluation.config.quantities:
        truth = evaluation.truth_climate.mean(name)
        error = abs(long.climate.mean(name) / truth - 1) if truth else float("nan")
        scores[f"climate_error_{name}"] = number(error)
    if evaluation.spectral_axis is not None:
        # Factors of the spectra up to the scale below which the truth has 1 % and 0.1 % of its
        # power: a rollout that blurs or grows noise fails at the smallest scales first.
        for name in long.climate.fields:
            own, truth_power = long.climate.power(name), evaluation.truth_climate.power(name)
            for share, label in ((0.99, "99"), (0.999, "999")):
                factor = spectrum_factor(own, truth_power, share)
                scores[f"spectrum_factor_{label}_{name}"] = number(factor)
    return scores


def _climate_table(evaluation: Evaluation, long: LongRollout) -> Table:
    names = [*(f"mean_{n}" for n in long.climate.fields), *evaluation.config.quantities]
    rows: list[list[Any]] = []
    for name in names:
        climates = (evaluation.truth_climate, long.climate)
        rows.append([name, *(number(f(name)) for c in climates for f in (c.mean, c.spread))])
    left = f"Left the range of the truth, widened by half: {long.departures}. " if long.left else ""
    diverged = "; the next one diverged, and ended the rollout" if long.diverged else ""
    return Table(
        title=f"Climate of a rollout of {long.steps} steps beyond the end of the data",
        columns=["quantity", "truth", "its spread", "emulator", "its spread "],
        rows=rows,
        note=f"{long.finite} steps are finite{diverged}. {left}"
        f"The truth is the {evaluation.truth_climate.frames} samples of the test split; the first "
        "tenth of the rollout is left out.",
    )


def _verdict(evaluation: Evaluation) -> Verdict | None:
    """Return the verdict on the mean VRMSE of the outputs, of rollouts or of one step."""
    if PERSISTENCE not in evaluation.one_step:
        return None
    scales = {
        name: evaluation.deviation[name]
        for name in evaluation.outputs
        if evaluation.deviation[name]
    }
    if not scales:  # all outputs are constant
        return None
    methods = (OWN, PERSISTENCE, LINEAR)
    if evaluation.has_rollout:
        rollouts = {m: r for m, r in evaluation.rollouts.items() if m in methods}
        # The last step is the hardest for the emulator. Errors are divided by the spread of the
        # truth, because RMSE of outputs in different units have no mean.
        errors = {m: {n: r[n][-1] for n in scales} for m, r in rollouts.items()}
        steps = len(evaluation.rollouts[OWN][evaluation.outputs[0]])
    else:
        errors = {m: {n: e[n] for n in scales} for m, e in evaluation.one_step.items()}
        steps = 1
    values = {}
    for method, error in errors.items():
        # A baseline without that step, or a rollout that ended, must not win: NaN has no rank.
        ratios = [np.nan if (e := error[n]) is None else e / scales[n] for n in scales]
        values[method] = number(np.mean(ratios))
    named = ", ".join(scales)
    when = f"after {steps} steps" if steps > 1 else _after(evaluation)
    return Verdict.among(values, OWN, f"VRMSE {when} (mean of {named})")


def _after(evaluation: Evaluation) -> str:
    step = evaluation.layout.step
    if not evaluation.lead:
        return "of each sample"
    return f"after {evaluation.lead} step" + (
        f" ({evaluation.layout.sample_dim} + {step:g})" if step else ""
    )


def _named(variable: Variable) -> str:
    return (
        f"{variable.name} [{variable.units}]"
        if variable.units not in ("", "1")
        else (variable.name)
    )


def _one_step(evaluation: Evaluation) -> Table:
    shown = {**evaluation.one_step, "(standard deviation)": evaluation.deviation}
    vrmse = ", ".join(
        f"{n} {evaluation.one_step[OWN][n] / evaluation.deviation[n]:.3g}"
        for n in evaluation.outputs
        if evaluation.deviation[n]
    )
    return error_table(
        f"RMSE {_after(evaluation)}",
        [*map(_named, evaluation.layout.outputs)],
        {name: [errors[n] for n in evaluation.outputs] for name, errors in shown.items()},
        note=f"VRMSE of the emulator: {vrmse}. Means over cells are weighted by their volumes.",
    )


def _horizons(evaluation: Evaluation) -> Table:
    length = len(evaluation.rollouts[OWN][evaluation.outputs[0]])
    rows: list[list[Any]] = []
    for name in evaluation.outputs:
        rows.append([name, *(evaluation.steps_better(name, r) for r in (PERSISTENCE, LINEAR))])
    return Table(
        title="Horizon: steps for which the rollout beats",
        columns=["output", PERSISTENCE, LINEAR],
        rows=rows,
        note=f"Of {length} steps; of {length - 1} for linear extrapolation, which needs a frame "
        "before the first. Counted up to the first step at which the baseline is better.",
    )


def _rollout_table(evaluation: Evaluation) -> Table:
    length = len(evaluation.rollouts[OWN][evaluation.outputs[0]])
    shown = sorted({1, 2, 4, 8, length} & set(range(1, length + 1)))
    rows: list[list[Any]] = []
    for name in evaluation.outputs:
        for forecast in (OWN, PERSISTENCE, LINEAR):
            series = evaluation.rollouts[forecast][name]
            rows.append(
                [
                    f"{name}, {forecast}",
                    *(None if series[s - 1] is None else number(series[s - 1]) for s in shown),
                ]
            )
    return Table(
        title="RMSE of rollouts",
        columns=["output, forecast", *(f"step {s}" for s in shown)],
        rows=rows,
        note=f"Over {evaluation.starts} starts in the test split; fewer reach the last steps.",
    )


def _rollout_lines(evaluation: Evaluation, variable: Variable) -> Lines:
    name = variable.name
    length = len(evaluation.rollouts[OWN][name])
    unit = f" [{variable.units}]" if variable.units not in ("", "1") else ""
    errors = {m: evaluation.rollouts[m][name] for m in (OWN, PERSISTENCE, LINEAR)}
    errors["standard deviation"] = [evaluation.deviation[name]] * length
    series = curves(errors, baselines=(PERSISTENCE, LINEAR), references=["standard deviation"])
    return against_steps(name, f"RMSE{unit}", series, log_y=True)


def _spectrum_lines(evaluation: Evaluation, variable: Variable) -> Lines:
    spectra = {k: np.mean(v, axis=0) for k, v in evaluation.spectra[variable.name].items()}
    count = len(next(iter(spectra.values())))
    truths = [label for label in spectra if label.startswith("truth")]
    # Truths are almost equal. The mean is no wave, and a logarithmic axis has no zero.
    shown = {
        "truth" if label in truths else label: [max(v, 1e-300) for v in values[1:]]
        for label, values in spectra.items()
        if label not in truths[1:]
    }
    waves = "wavenumber (waves in the period)"
    return spectrum_lines(
        variable.name, range(1, count), waves, curves(shown, references=["truth"])
    )


def _fields(evaluation: Evaluation) -> xr.Dataset | None:
    """Return planes of truth, forecast and error of the shown steps; None in one dim."""
    dims = list(evaluation.layout.grid)
    names = [v.name for v in evaluation.layout.outputs if v.is_field]
    if len(dims) < 2 or not names or not evaluation.frames:
        return None
    steps = sorted(evaluation.frames)
    plane = dims[-2:]
    out = {}
    for name in names:
        units = evaluation.layout.variables[name].units
        parts = {}
        for kind in ("truth", OWN):
            parts[kind] = np.stack(
                [middle_plane(evaluation.frames[s][kind][name], len(dims)) for s in steps]
            )
        parts["error"] = parts[OWN] - parts["truth"]
        for kind, values in parts.items():
            out[f"{name}_{kind}"] = xr.DataArray(
                values, dims=("step", *plane), attrs={"units": units} if units else {}
            )
    coords = {
        d: evaluation.layout.coordinates[d] for d in plane if d in evaluation.layout.coordinates
    }
    return xr.Dataset(out, coords={"step": steps, **coords})


def _maps(evaluation: Evaluation, fields: xr.Dataset) -> list[Lines | Maps]:
    """Return maps of truth, emulator and error at the last shown step, one row per output."""
    outputs = [v for v in evaluation.layout.outputs if v.is_field][: 2 * ROWS]
    last = fields.sizes["step"] - 1
    step = int(fields["step"].values[last])
    when = f"after {step} step{'s' * (step != 1)}" if step else "of the first test sample"
    if step and evaluation.layout.step:
        when += f" ({evaluation.layout.sample_dim} + {step * evaluation.layout.step:g})"
    maps: list[Lines | Maps] = []
    for first in range(0, len(outputs), ROWS):
        panels: list[Panel] = []
        for v in outputs[first : first + ROWS]:
            panels += beside_truth(
                {kind: f"{v.name}: {kind}" for kind in ("truth", OWN, "error")},
                prefix=f"{v.name}_",
                scale=v.name,
                select={"step": last},
                unit=v.units,
            )
        maps.append(Maps(title=f"Truth, emulator and error {when}", panels=panels))
    return maps


def _profiles(evaluation: Evaluation) -> list[Lines | Maps]:
    """Return truth and forecast as lines, for fields in one dim."""
    lines: list[Lines | Maps] = []
    if len(evaluation.layout.grid) != 1 or not evaluation.frames:
        return lines
    (dim,) = evaluation.layout.grid
    x = evaluation.layout.coordinates.get(dim, list(range(evaluation.layout.grid[dim])))
    last = evaluation.frames[max(evaluation.frames)]
    for variable in [v for v in evaluation.layout.outputs if v.is_field][:MAX_FIGURES]:
        lines.append(
            Lines(
                title=f"{variable.name} after {max(evaluation.frames)} steps",
                x=[float(v) for v in x],
                x_label=dim,
                y_label=_named(variable),
                series=curves(
                    {kind: last[kind][variable.name] for kind in ("truth", OWN)},
                    references=["truth"],
                ),
            )
        )
    return lines
