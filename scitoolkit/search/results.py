"""Tables and figures of a search, made from its history; the search may still be running."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scitoolkit.core.results import (
    Bars,
    Diagram,
    Figure,
    Lines,
    Parallel,
    Points,
    Results,
    Scale,
    Series,
    Table,
    Verdict,
    metric_words,
    number,
)
from scitoolkit.search.history import History
from scitoolkit.search.parameters import Categorical, Chain, Real
from scitoolkit.search.space import Space
from scitoolkit.search.trial import Trial

_BEST, _BINS = 10, 40
_SPREAD = 6.0  # losses shown: to so many times the distance of the median from the best
_AXES = 8  # of parallel coordinates
# Below this number of trials a ranking of parameters is mostly noise.
_RELIABLE = 30
_COST = "parameters"


def search_results(
    history: History, space: Space, tested: Results | None = None, *, title: str = "search"
) -> Results:
    """Return the results of a search, from which the report is drawn.

    Args:
        history: trials of the search.
        space: its search space.
        tested: test results of the winner, None if it was not trained.
        title: name of the search.
    """
    best = history.winner()
    figures: list[Figure] = []
    if history.done:
        figures += trajectory_figures(history)
        figures.append(parallel_figure(history, space))
        figures += [f for f in (front_figure(history), importance_figure(history, space)) if f]
    if best is not None:
        figures += architecture_figures(best, space)
    figures.append(busy_figure(history))
    possible = (finalist_table(history), best_table(history), failure_table(history))
    tables = [table for table in possible if table]
    metrics = _metrics(history, best)
    if tested is not None:
        tables += [t.model_copy(update={"title": f"Winner: {t.title}"}) for t in tested.tables]
        metrics |= {f"test_{name}": value for name, value in tested.metrics.items()}
    return Results(
        title=f"Search {title}",
        verdict=_verdict(history),
        summary=_summary(history, space, best, tested is not None),
        metrics=metrics,
        tables=tables,
        figures=figures,
    )


def _metrics(history: History, best: Trial | None) -> dict[str, Any]:
    out: dict[str, Any] = {
        "trials_done": len(history.done),
        "trials_failed": history.num_failed,
        **({"trials_pruned": history.num_pruned} if history.num_pruned else {}),
        "duplicates": history.duplicates(),
        "busy_share": number(history.busy_share()),
        "seconds": number(history.clock),
    }
    if best is not None:
        out["winner"] = best.id
        out |= {
            f"search_{name}": number(value)
            for name, value in best.metrics.items()
            if value is not None
        }
    finalists = history.finalists()
    if finalists:
        sign = _sign(history)
        out["retrained_mean"] = number(sign * finalists[0]["mean"])
        out["seed_spread"] = finalists[0]["spread"]
        if len(finalists) > 1:
            out["gain_over_second"] = number(finalists[1]["mean"] - finalists[0]["mean"])
    return out


def _verdict(history: History) -> Verdict | None:
    """Return the comparison of the winner, by its mean over new seeds.

    The baseline is the forecast without the searched network if trials report it, else the best
    other finalist. A difference within the winner's standard deviation over seeds is a tie.
    """
    sign, finalists = _sign(history), history.finalists()
    if not finalists:
        return None
    objective, first = history.objectives[0], finalists[0]
    ours = sign * first["mean"]
    without = _without_network(history, first)
    if without is None:
        others = {f"trial {f['trial']}": sign * f["mean"] for f in finalists[1:]}
    else:
        others = {"the no-network forecast": without}
    noise = first["spread"]
    seeds = "one seed" if first["seeds"] == 1 else f"mean of {first['seeds']} seeds"
    if noise is not None:
        seeds += f", standard deviation {noise:.2g}"
    verdict = Verdict.among(
        {"winner": number(ours), **others},
        "winner",
        f"{metric_words(objective.name)} of the winner ({seeds})",
        better=objective.direction,
        rate=objective.direction == "min",
    )
    if verdict is None or verdict.rival is None:
        return verdict
    tie = noise is not None and abs(verdict.ours - verdict.rival) <= noise
    return verdict.model_copy(update={"tie": tie})


def _without_network(history: History, first: Mapping[str, Any]) -> float | None:
    """Return the objective without the searched network, None if trials do not report it.

    The metric `NAME_base` is the objective NAME of the forecast without the searched network.
    """
    name = f"{history.objectives[0].name}_base"
    runs = [history.trials[number].metrics for number in first["runs"]]
    measured = [value for metrics in runs if (value := metrics.get(name)) is not None]
    return float(np.mean(measured)) if measured else None


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sign(history: History) -> int:
    return 1 if history.objectives[0].direction == "min" else -1


def _summary(history: History, space: Space, best: Trial | None, tested: bool) -> list[str]:
    workers = _counted(history.workers, "worker")
    lines = [
        f"{_evaluated(len(history.done), space)} in {history.clock:.0f} s on {workers}, "
        f"busy {100 * history.busy_share():.1f} % of the time."
    ]
    failed = history.failures()
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
        lines.append(f"{_counted(sum(failed.values()), 'trial')} failed: {kinds}.")
    stopped = len(history.interrupted)
    if len(history.running) > stopped:
        lines.append(f"{len(history.running) - stopped} trials were running when this was written.")
    if stopped:
        lines.append(
            f"{stopped} trials were stopped by a fault of the machine; --resume "
            "evaluates them again."
        )
    finalists = history.finalists()
    if finalists and best is not None:
        name, first = metric_words(history.objectives[0].name), finalists[0]
        noise = first["spread"]
        text = f"Trial {best.id} won: {name} {_sign(history) * first['mean']:.5g} "
        if best.values:
            text += f"({_sign(history) * best.values[0]:.5g} in the search, by its seed), "
        text += (
            "retrained with one new seed, so the noise of seeds is unknown"
            if noise is None
            else f"the mean over {first['seeds']} new seeds with standard deviation {noise:.2g}"
        )
        if len(finalists) > 1:
            gain = finalists[1]["mean"] - first["mean"]
            text += f"; it beats the next finalist by {gain:.2g}"
            if noise is not None:
                text += f", {'more' if gain > noise else 'not more'} than that noise"
        lines.append(text + ".")
        lines += _base_comparison(history, first)
    if tested:
        lines.append("The test split was used once, after the winner was chosen and trained.")
    return lines


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _evaluated(done: int, space: Space) -> str:
    """Return how many configurations of the space were evaluated."""
    verb = "was" if done == 1 else "were"
    if isinstance(space.size, int):
        return f"{done:,} of {_counted(space.size, 'configuration')} {verb} evaluated"
    continuous = sum(isinstance(kind, Real) for kind in space.variables.values())
    discrete = len(space.variables) - continuous
    return (
        f"{_counted(done, 'configuration')} of a space with {discrete} discrete and "
        f"{_counted(continuous, 'continuous parameter')} {verb} evaluated"
    )


def _base_comparison(history: History, first: dict[str, Any]) -> list[str]:
    """Return a sentence that compares the winner with its base, if trials report the base."""
    objective = history.objectives[0]
    without = _without_network(history, first)
    if without is None:
        return []
    sign = _sign(history)
    gain = sign * without - first["mean"]
    name = metric_words(objective.name)
    values = f"{name} {sign * first['mean']:.4g} with it, {without:.4g} without"
    if gain <= 0:
        return [f"The searched network does not beat the forecast without one: {values}."]
    noise = first["spread"]
    within = "" if noise is None else f", {'beyond' if gain > noise else 'within'} seed noise"
    return [f"The searched network beats the forecast without one{within}: {values}."]


# --- tables -----------------------------------------------------------------------------------


def best_table(history: History) -> Table | None:
    """Return the best trials: objectives, and the parameters in which they differ."""
    trials = history.ranked()[:_BEST]
    if not trials:
        return None
    names = list(dict.fromkeys(o.name for o in history.objectives))
    configurations, common = _without_common([t.configuration for t in trials])
    rows = [
        [
            str(t.id),
            *(None if t.metrics.get(n) is None else number(t.metrics[n]) for n in names),
            round(t.wall, 2),
            t.origin,
            configuration_text(c),
        ]
        for t, c in zip(trials, configurations, strict=True)
    ]
    columns = ["trial", *names, "wall (s)", "origin", "configuration"]
    note = "Scores of the search itself; the best of many noisy scores is biased towards optimism."
    if common:
        note += f" The same in all rows: {configuration_text(common)}."
    return Table(title="Best trials", columns=columns, rows=rows, note=note)


def _without_common(
    configurations: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return configurations without the parameters equal in all of them, and those parameters."""
    first = configurations[0]
    common = {
        key: value
        for key, value in first.items()
        if len(configurations) > 1 and all(key in c and c[key] == value for c in configurations)
    }
    return [{k: v for k, v in c.items() if k not in common} for c in configurations], common


def finalist_table(history: History) -> Table | None:
    """Return the retrained configurations with the spread over their seeds."""
    sign, rows = _sign(history), []
    for row in history.finalists():
        trial = history.trials[row["trial"]]
        rows.append(
            [
                str(trial.id),
                number(sign * row["mean"]),
                row["spread"],
                row["seeds"],
                number(sign * trial.values[0]),
                configuration_text(trial.configuration),
            ]
        )
    if not rows:
        return None
    columns = [
        "trial",
        f"mean {metric_words(history.objectives[0].name)}",
        "seed spread",
        "seeds",
        "in the search",
        "configuration",
    ]
    note = "Retrained with new seeds; ordered by the means."
    return Table(title="Finalists", columns=columns, rows=rows, note=note)


def failure_table(history: History) -> Table | None:
    """Return the number of failures of each kind, with the last message; None without any."""
    failed = [t for t in history.trials.values() if t.status == "failed" and not t.outside]
    last: dict[str, Trial] = {t.failure: t for t in failed}
    if not last:
        return None
    count = history.failures()
    rows: list[list[Any]] = [
        [kind, count[kind], str(t.id), (t.error.strip().splitlines() or [""])[-1][:160]]
        for kind, t in last.items()
    ]
    return Table(title="Failures", columns=["kind", "trials", "last trial", "message"], rows=rows)


def configuration_text(configuration: dict[str, Any]) -> str:
    """Return a configuration in one line: leaf names, chains as `16-0-32 +[0,1]`, six digits.

    The log and `winner.json` store the full precision.

    Example:
        >>> configuration_text({"model.hidden": 16, "a": {"nodes": [16, 0], "skips": [[0, 1]]}})
        'hidden=16 a=16-0 +[0,1]'
    """
    parts = []
    for key, value in configuration.items():
        if isinstance(value, dict) and "nodes" in value:
            skips = "".join(f"[{a},{b}]" for a, b in value.get("skips", []))
            value = "-".join(map(str, value["nodes"])) + (f" +{skips}" if skips else "")
        text = f"{value:.6g}" if isinstance(value, float) else value
        parts.append(f"{key.rpartition('.')[2]}={text}")
    return " ".join(parts)


# --- figures ----------------------------------------------------------------------------------


def trajectory_figures(history: History) -> list[Figure]:
    """Return the first objective over the trial's number, the best so far and the baseline.

    The finalists are also drawn at the mean over their new seeds, which decides. Trials so far from
    the best that they would flatten the others are left out, and counted in the note.
    """
    objective, sign = history.objectives[0], _sign(history)
    trials = sorted((t for t in history.done if t.spans), key=lambda t: t.id)
    order = [float(t.id) for t in trials]
    values = [t.values[0] for t in trials]
    best = np.minimum.accumulate(values)
    name = metric_words(objective.name)
    worst_shown = _worst_shown(values)
    far = [t for t, value in zip(trials, values, strict=True) if value > worst_shown]
    shown = [None if v > worst_shown else sign * v for v in values]
    steps = [None if v > worst_shown else sign * float(v) for v in best]
    series = [
        Series(label="trial", x=order, y=shown, role="baseline"),
        Series(label="best so far", x=order, y=steps),
    ]
    if finalists := history.finalists():
        series.append(
            Series(
                label="finalist, mean over new seeds",
                x=[float(one["trial"]) for one in finalists],
                y=[sign * one["mean"] for one in finalists],
            )
        )
    baselines = [m for t in trials if (m := t.metrics.get(f"{objective.name}_base")) is not None]
    if baselines:
        ends = [order[0], order[-1]]
        series.append(
            Series(
                label="without a searched network",
                x=ends,
                y=[float(np.mean(baselines))] * 2,
                role="reference",
            )
        )
    joined = ["best so far", "without a searched network"]
    return [
        Points(
            title=f"{_capital(name)} of each trial",
            x_label="number of the trial",
            y_label=name,
            series=series,
            joined=joined,
            note=f"Not shown: {_counted(len(far), 'trial')} with values beyond "
            f"{sign * worst_shown:.4g}, up to {sign * max(t.values[0] for t in far):.4g}."
            if far
            else "",
        )
    ]


def _worst_shown(values: Sequence[float]) -> float:
    """Return the largest loss that the figure of trials shows."""
    if len(values) < 4:
        return math.inf
    best, middle = min(values), float(np.median(values))
    return best + _SPREAD * (middle - best) if middle > best else math.inf


def busy_figure(history: History) -> Figure:
    """Return the share of busy workers against time."""
    spans = [span for t in history.trials.values() for span in t.spans]
    edges = np.linspace(0.0, max(history.clock, 1e-9), _BINS + 1)
    busy = np.zeros(_BINS)
    for start, stop, _ in spans:
        busy += np.clip(np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start), 0, None)
    share = busy / (history.workers * np.diff(edges))
    middle = ((edges[1:] + edges[:-1]) / 2).tolist()
    return Lines(
        title="Share of workers that run a trial",
        x=middle,
        x_label="time (s)",
        y_label="share",
        series=[Series(label="busy", y=share.tolist())],
        note=f"Mean {history.busy_share():.3f}; the share drops at the end while the last trials "
        "finish.",
    )


def front_figure(history: History) -> Figure | None:
    """Return the Pareto front of the first two objectives, or of the first and `parameters`."""
    names = [o.name for o in history.objectives]
    trials = history.ranked()
    if len(names) < 2 and not all(t.metrics.get(_COST) is not None for t in trials):
        return None
    x, y = (names[1], names[0]) if len(names) > 1 else (_COST, names[0])
    # Losses at different budgets cannot be compared, so the front is that of the largest one.
    trials = [t for t in trials if t.reached == trials[0].reached] if trials else []
    if not trials:
        return None
    figures = {t.id: (float(t.metrics[x] or 0.0), float(t.metrics[y] or 0.0)) for t in trials}
    sign = [1 if o.direction == "min" else -1 for o in history.objectives] + [1]
    from scitoolkit.search.pareto import pareto_front

    points = [(sign[1] * cost, sign[0] * loss) for cost, loss in figures.values()]
    front = [trials[i] for i in pareto_front(points)]
    series = [
        Series(
            label=label,
            x=[figures[t.id][0] for t in group],
            y=[figures[t.id][1] for t in group],
            role="main" if label == "Pareto front" else "baseline",
        )
        for label, group in (("trials", trials), ("Pareto front", front))
    ]
    spread = [p[0] for p in points]
    return Points(
        title=f"{_capital(metric_words(y))} against {metric_words(x)}",
        x_label=metric_words(x),
        y_label=metric_words(y),
        series=series,
        joined=["Pareto front"],
        log_x=min(spread) > 0 and max(spread) > 20 * min(spread),
    )


def importance(history: History, space: Space) -> dict[str, float]:
    """Return the share of the rank variance of the first objective explained by each variable.

    The share is adjusted for the number of levels, so that an irrelevant variable has about 0.
    Interactions between variables are not detected. Empty with fewer than 8 trials.

    Source:
        Kelley's epsilon squared on ranks (1935, PNAS 21, 554).
    """
    trials = [t for t in history.done]
    if len(trials) < 8:
        return {}
    # Ranks, because the variance of the losses is that of a few diverged trials.
    ranks = np.argsort(np.argsort([t.values[0] for t in trials])).astype(float)
    table = np.array([space.features(t.codes) for t in trials])
    out = {}
    for j, (name, kind) in enumerate(space.variables.items()):
        groups = table[:, j]
        if isinstance(kind, Real) or kind.levels > 12:
            # Inactive trials (-1) are a separate group and do not move the quartiles of the
            # others.
            on = groups >= 0
            edges = np.quantile(groups[on], [0.25, 0.5, 0.75]) if on.any() else []
            groups = np.where(on, np.searchsorted(edges, groups), -1)
        out[name] = _explained(ranks, groups)
    return dict(sorted(out.items(), key=lambda item: -item[1]))


def _explained(values: np.ndarray, groups: np.ndarray) -> float:
    levels = np.unique(groups)
    count, total = len(values), ((values - values.mean()) ** 2).sum()
    if len(levels) < 2 or count <= len(levels) or total == 0:
        return 0.0
    within = sum(
        float(((values[groups == g] - values[groups == g].mean()) ** 2).sum()) for g in levels
    )
    # Divided by degrees of freedom, as in the adjusted R^2: otherwise a variable with many levels
    # would explain noise.
    return max(0.0, 1 - (within / (count - len(levels))) / (total / (count - 1)))


def importance_figure(history: History, space: Space) -> Figure | None:
    """Return a bar chart of up to 15 variables that explain some of the variance."""
    importances = [item for item in importance(history, space).items() if item[1] > 0]
    shares = dict(importances[:15])
    if not shares:
        return None
    return Bars(
        title="Importance of parameters",
        labels=list(shares),
        values=list(shares.values()),
        x_label="share of the rank variance explained by the parameter alone",
        note=""
        if len(history.done) >= _RELIABLE
        else f"Not reliable: with {len(history.done)} trials (fewer than {_RELIABLE}), the ranking "
        "is mostly noise.",
    )


def parallel_figure(history: History, space: Space) -> Figure:
    """Return parallel coordinates of all trials, coloured by the first objective.

    Shows the `_AXES` parameters that explain most of the objective, in the order of the space.
    """
    trials, best = history.done, history.winner()
    shares = importance(history, space)
    ranked = sorted(space.variables, key=lambda name: -shares.get(name, 0.0))
    places = [j for j, name in enumerate(space.variables) if name in ranked[:_AXES]]
    kinds = list(space.variables.values())
    axes = []
    for name, kind in (list(space.variables.items())[j] for j in places):
        ticks = [_tick(v) for v in kind.values] if isinstance(kind, Categorical) else []
        axes.append(Scale(label=name.rpartition(".")[2], ticks=ticks, log=not ticks and kind.log))  # type: ignore[union-attr]
    rows = [[_coordinate(t.codes[j], kinds[j]) for j in places] for t in trials]
    marked = next((i for i, t in enumerate(trials) if best is not None and t.id == best.id), None)
    sign = _sign(history)
    left_out = len(space.variables) - len(places)
    return Parallel(
        title="All trials, the winner highlighted",
        axes=axes,
        rows=rows,
        colour=[sign * t.values[0] for t in trials],
        colour_label=metric_words(history.objectives[0].name),
        marked=marked,
        note=f"The {len(places)} parameters with the largest effect; {left_out} are left out."
        if left_out
        else "",
    )


def _coordinate(code: Any, kind: Any) -> float | None:
    return (
        None if code is None else float(code if isinstance(kind, Categorical) else kind.value(code))
    )


def _tick(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def architecture_figures(trial: Trial, space: Space) -> Sequence[Figure]:
    """Return a diagram of every `Chain` in a trial's configuration."""
    figures: list[Figure] = []
    for name, parameter in space.parameters.items():
        value = trial.configuration.get(name)
        if isinstance(parameter, Chain) and value is not None:
            nodes = [f"{i}: {v}" if v else f"{i}: –" for i, v in enumerate(value["nodes"], 1)]
            arrows = [(i, i + 1) for i in range(len(nodes) + 1)]
            skips = [(int(a), int(b)) for a, b in value.get("skips", [])]
            figures.append(
                Diagram(
                    title=f"The winner's {name}",
                    boxes=["input", *nodes, "output"],
                    arrows=[*arrows, *((a, b) for a, b in skips)],
                    note="Curved arrows are skip connections; a dash is a node without a layer.",
                )
            )
    return figures
