"""Evaluation of a model on a test simulation, compared with interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.expressions import evaluate_constant
from scitoolkit.core.results import (
    Lines,
    Maps,
    Panel,
    Results,
    Table,
    Verdict,
    number,
)
from scitoolkit.fields.spectra import decades_apart
from scitoolkit.superresolution import statistics
from scitoolkit.superresolution.baselines import interpolate
from scitoolkit.superresolution.checking import check
from scitoolkit.superresolution.config import SuperresolutionConfig
from scitoolkit.superresolution.equations import PDE
from scitoolkit.superresolution.grid import RectilinearGrid, grid_of, numeric_attributes, values_of
from scitoolkit.superresolution.masked import filled
from scitoolkit.superresolution.spectrum import WaveGains
from scitoolkit.superresolution.surrogate import SuperresolutionSurrogate
from scitoolkit.surrogate.sections import beside_truth, curves, error_table, spectrum_lines

Array = np.ndarray
MODEL, LINEAR, CUBIC, SPECTRAL = "MeshfreeFlowNet", "multilinear", "cubic", "spectral"
BASELINES = (LINEAR, CUBIC, SPECTRAL)
REFINED = "refined"
_RESIDUAL_POINTS = 4096
_TITLE = "Super-resolution of "
_STRIP = 3
_ROWS = 4  # fields in a figure
_SPECTRUM_NAMES = ("spectrum_error", "spectrum_error_highest_third")


@dataclass
class EvaluatedFields:
    """Results, and the fields of their maps."""

    results: Results
    maps: xr.Dataset


def evaluate(
    surrogate: SuperresolutionSurrogate,
    dataset: xr.Dataset,
    config: SuperresolutionConfig,
    source: str,
    gains: WaveGains | None = None,
    valid_on: Callable[[RectilinearGrid], Array | None] = lambda grid: None,
) -> EvaluatedFields:
    """Coarsen a resolved simulation as in training, refine it again, and compare with the truth.

    Args:
        surrogate: the model.
        dataset: the truth, on a grid like the training file's.
        config: the job, for velocities, viscosity and equations.
        source: name of the file, for titles.
        gains: spectral correction for the `refined` prediction; None for none.
        valid_on: returns the valid nodes of a grid, which are scored; None if all are valid.

    Raises:
        DataError: other dims or fields, too few nodes, or NaN.
    """
    surrogate = surrogate.in_box(dataset, source)
    case = Case.of(surrogate, dataset, source, valid_on)
    predictions = {
        MODEL: case.predict(surrogate),
        LINEAR: interpolate(case.low, case.every, case.closed, "linear"),
        CUBIC: interpolate(case.low, case.every, case.closed, "cubic"),
        SPECTRAL: interpolate(case.low, case.every, case.closed, "spectral"),
    }
    if gains is not None:
        axis = gains.along(case.grid.dims, case.grid.nodes, case.grid.periods)
        length = case.grid.periods[axis - 1]
        predictions[REFINED] = gains.apply(predictions[MODEL], axis, float(length or 0))
    flow = flow_of(config, case.grid, dataset, surrogate.header.fields)
    metrics: dict[str, float | int | str | None] = {}
    tables = [_pointwise(case, predictions, metrics)]
    figures: list[Lines | Maps] = []
    if flow is not None:
        tables.append(_turbulence(case, predictions, flow, metrics))
        figures += _energy_lines(case, predictions, flow)
    if case.valid is None and any(p is not None for p in case.grid.periods):
        table, lines = _spectra(case, predictions, config, metrics)
        tables.append(table)
        figures.append(lines)
    if config.pde.equations:
        tables.append(_residuals(surrogate, case, config, dataset, metrics))
    maps, drawn = _maps(case, predictions)
    return EvaluatedFields(
        Results(
            title=f"{_TITLE}{source}",
            verdict=_verdict(case, predictions),
            summary=[
                f"{_size(case.low.shape[1:])} nodes to {_size(case.grid.shape)} "
                f"({', '.join(case.grid.dims)}) on a simulation that was not trained on.",
                *_compared(case.fields, metrics),
            ],
            metrics=metrics,
            tables=tables,
            figures=[*drawn, *figures],
        ),
        maps,
    )


def add_coarser(
    results: Results, surrogate: SuperresolutionSurrogate, dataset: xr.Dataset, source: str
) -> None:
    """Add R² of the coarser resolutions of a training, as `r2_FIELD_coarserN`, and a table."""
    surrogate = surrogate.in_box(dataset, source)
    rows: list[list[float | int | str | None]] = []
    for factor in surrogate.header.coarser[1:]:
        case = Case.of(surrogate.thinned(factor), dataset, source)
        predictions = {
            MODEL: case.predict(surrogate),
            LINEAR: interpolate(case.low, case.every, case.closed, "linear"),
            CUBIC: interpolate(case.low, case.every, case.closed, "cubic"),
        }
        for name, values in predictions.items():
            scores = {f: number(r2) for f, (r2, _) in case.scores(values).items()}
            end = "" if name == MODEL else f"_{name}"
            results.metrics.update({f"r2_{f}_coarser{factor}{end}": r for f, r in scores.items()})
            rows.append([factor, _size(case.low.shape[1:]), name, *scores.values()])
    columns = ["factor", "nodes", "prediction", *(f"R² {f}" for f in surrogate.header.fields)]
    results.tables.append(Table(title="Coarser resolutions", columns=columns, rows=rows))


def measure_gains(
    surrogate: SuperresolutionSurrogate, dataset: xr.Dataset, source: str
) -> WaveGains:
    """Return the spectral correction along the last periodic dim, measured on a simulation.

    Raises:
        ConfigError: no periodic dim, or nodes that do not fill it evenly.
    """
    surrogate = surrogate.in_box(dataset, source)
    case = Case.of(surrogate, dataset, source)
    dims = [d for d, p in zip(case.grid.dims, case.grid.periods, strict=True) if p is not None]
    if not dims:
        raise ConfigError("no dim is periodic", where="spectrum", fix="leave it out")
    axis = case.grid.dims.index(dims[-1])
    length = float(case.grid.periods[axis] or 0)
    gains = WaveGains.measure(case.truth, case.predict(surrogate), axis + 1, dims[-1], length)
    gains.along(case.grid.dims, case.grid.nodes, case.grid.periods)
    return gains


def _compared(fields: Sequence[str], metrics: Mapping[str, Any]) -> list[str]:
    """Return sentences that compare the model with each baseline: fields, then statistics."""
    above = []
    for baseline in BASELINES:
        number_above = sum(
            float(metrics[f"r2_{f}"] or 0) > float(metrics[f"r2_{f}_{baseline}"] or 0)
            for f in fields
        )
        above.append(f"{baseline} interpolation on {number_above}")
    return [
        f"Of {len(fields)} fields the model has a higher R² than {', '.join(above)}.",
        *_statistics_lost(metrics),
    ]


def _statistics_lost(metrics: Mapping[str, Any]) -> list[str]:
    """Return a sentence on the statistics for which a baseline has a smaller error, if any."""
    lost = []
    for key in (key for key in metrics if key.endswith("_error")):
        errors = {b: metrics.get(f"{key}_{b}") for b in BASELINES}
        measured = {b: error for b, error in errors.items() if error is not None}
        ours = math.inf if metrics[key] is None else metrics[key]
        best = min(measured, key=lambda b: measured[b], default="")
        if best and measured[best] < ours:
            scale, unit = (1, "decades") if key in _SPECTRUM_NAMES else (100, "%")
            name = key.removesuffix("_error").replace("_", " ")
            for person in ("taylor", "kolmogorov"):
                name = name.replace(person, person.capitalize())
            rival = f"{best} {scale * measured[best]:.3g} {unit}"
            text = f"{name} ({rival}, model {scale * ours:.3g} {unit})"
            lost.append((ours / measured[best] if measured[best] else math.inf, text))
    if not lost:
        return []
    named = ", ".join(text for _, text in sorted(lost, reverse=True))
    return [f"Interpolation has a smaller error than the model in: {named}."]


def over_simulations(results: Sequence[Results], fields: Sequence[str]) -> Results:
    """Merge the results of several simulations: mean metrics, and the figures of the first one.

    Args:
        results: of each simulation.
        fields: names of the fields.
    """
    first = results[0]
    if len(results) == 1:
        return first
    names = [name for name, value in first.metrics.items() if isinstance(value, float)]
    means = {}
    for name in names:
        values = [v for f in results if isinstance(v := f.metrics.get(name), float)]
        means[name] = number(float(np.mean(values)))
    rows: list[list[float | int | str | None]] = [
        [f.title.removeprefix(_TITLE), *(f.metrics[f"r2_{n}"] for n in fields)] for f in results
    ]
    table = Table(
        title="Every simulation",
        columns=["simulation", *(f"R² {n}" for n in fields)],
        rows=rows,
        note=f"Metrics are means over the {len(results)} simulations; other tables and the figures "
        "are of the first.",
    )
    metrics = {**first.metrics, **means}
    return first.model_copy(
        update={
            "title": f"{_TITLE}{len(results)} simulations",
            "metrics": metrics,
            "summary": [first.summary[0], *_compared(fields, metrics)],
            "tables": [table, *first.tables],
            "verdict": None,
        }
    )


def _verdict(case: Case, predictions: Mapping[str, Array]) -> Verdict | None:
    scores = {
        name: [r2 for r2, _ in case.scores(values).values()] for name, values in predictions.items()
    }
    means = {name: number(np.mean(values)) for name, values in scores.items()}
    return Verdict.among(means, MODEL, "mean R² of the fields", better="max", rate=False)


@dataclass(frozen=True)
class Case:
    """A test case: the truth and its coarse nodes."""

    fields: tuple[str, ...]
    units: tuple[str, ...]
    grid: RectilinearGrid
    truth: Array
    low: Array
    low_grid: RectilinearGrid
    every: tuple[int, ...]
    closed: tuple[bool, ...]
    valid: Array | None = None

    @classmethod
    def of(
        cls,
        surrogate: SuperresolutionSurrogate,
        dataset: xr.Dataset,
        source: str,
        valid_on: Callable[[RectilinearGrid], Array | None] = lambda grid: None,
    ) -> Case:
        """Crop the truth so that its end nodes are coarse nodes, and coarsen it."""
        head = surrogate.header
        periodic = {d: p for d, p in zip(head.dims, head.periods, strict=True) if p is not None}
        grid = grid_of(dataset, head.fields, head.dims, periodic, source)
        valid = valid_on(grid)
        truth = values_of(dataset, head.fields, grid, source, True if valid is None else valid)
        every, closed = head.layout.every, head.closed
        keep = []
        for dim, count, n, wraps, least in zip(
            grid.dims, grid.shape, every, closed, head.window, strict=True
        ):
            # Along an open dim both end nodes have to be coarse ones, or the fine nodes beyond
            # would be an extrapolation; a periodic dim has to be filled by whole coarse cells.
            used = count - count % n if wraps else (count - 1) // n * n + 1
            if wraps and used != count:
                raise DataError(
                    f"{count} nodes of the periodic dim {dim}",
                    where=source,
                    allowed=f"multiples of {n}",
                )
            if used < ((2 if wraps else least) - 1) * n + 1:
                raise DataError(
                    f"{count} nodes along {dim} are fewer than a crop of the training",
                    where=source,
                    allowed=f"{(least - 1) * n + 1} or more",
                )
            keep.append(slice(0, used))
        dataset_shape = grid.shape
        truth = truth[(slice(None), *keep)]
        grid = grid.with_nodes([n[part] for n, part in zip(grid.nodes, keep, strict=True)])
        strides = tuple(slice(None, None, n) for n in every)
        low_grid = grid.with_nodes([n[s] for n, s in zip(grid.nodes, strides, strict=True)])
        low = truth[(slice(None), *strides)]
        if valid is not None:
            valid = np.broadcast_to(valid, dataset_shape)[tuple(keep)]
            if not valid[strides].any():
                raise DataError("no kept node of the coarse grid is valid", where=source)
            low = filled(low, valid[strides])
        return cls(head.fields, head.units, grid, truth, low, low_grid, every, closed, valid)

    def scores(self, values: Array) -> dict[str, tuple[float, float]]:
        """Return {field: (R², NMAE)} over valid nodes."""
        truth = self.truth
        if self.valid is not None:
            truth, values = truth[:, self.valid], values[:, self.valid]
        return statistics.summary(self.fields, truth, values)

    def coarse_dataset(self) -> xr.Dataset:
        """Return the coarse nodes as a dataset."""
        coordinates = dict(zip(self.grid.dims, self.low_grid.nodes, strict=True))
        return xr.Dataset(
            {f: (self.grid.dims, v) for f, v in zip(self.fields, self.low, strict=True)},
            coords=coordinates,
        )

    def predict(self, surrogate: SuperresolutionSurrogate) -> Array:
        """Return the model's fields on the fine nodes."""
        coarse = surrogate.coarse(self.coarse_dataset())
        out = np.empty_like(self.truth)
        for i, first in enumerate(self.grid.nodes[0]):
            mesh = np.meshgrid([first], *self.grid.nodes[1:], indexing="ij")
            points = np.stack(mesh, -1).reshape(-1, len(self.grid.dims))
            out[:, i] = coarse.query(points)[0].T.reshape(out[:, i].shape)
        return out


def flow_of(
    config: SuperresolutionConfig,
    grid: RectilinearGrid,
    dataset: xr.Dataset,
    fields: tuple[str, ...],
) -> statistics.Flow | None:
    """Return the configured flow; None without velocities."""
    if not config.flow.velocity:
        return None
    constants = numeric_attributes(dataset)
    for name, value in config.pde.constants.items():
        constants[name] = evaluate_constant(value, constants, f"pde.constants.{name}")
    viscosity = evaluate_constant(config.flow.viscosity, constants, "flow.viscosity")
    time = grid.dims.index(config.flow.time) if config.flow.time in grid.dims else None
    velocity = {d: fields.index(f) for d, f in config.flow.velocity.items()}
    return statistics.Flow(grid, velocity, viscosity, time)


def _size(shape) -> str:
    return "x".join(map(str, shape))


def _pointwise(case: Case, predictions: Mapping[str, Array], metrics) -> Table:
    rows: list[list[float | int | str | None]] = []
    for name, values in predictions.items():
        row: list[float | int | str | None] = [name]
        for field, (r2, nmae) in case.scores(values).items():
            suffix = "" if name == MODEL else f"_{name}"
            metrics[f"r2_{field}{suffix}"] = number(r2)
            metrics[f"nmae_{field}{suffix}"] = number(nmae)
            row += [number(r2), number(100 * nmae)]
        rows.append(row)
    columns = ["method"]
    for field in case.fields:
        columns += [f"R² {field}", f"NMAE {field} (%)"]
    return Table(
        title="Pointwise",
        columns=columns,
        rows=rows,
        note=f"R² over all {'' if case.valid is None else 'valid '}nodes, equally weighted; NMAE "
        "is the mean absolute error over the truth's range.",
    )


def _turbulence(case: Case, predictions, flow: statistics.Flow, metrics) -> Table:
    truth = statistics.turbulence(case.truth, flow)
    # Text, so that neither the digits nor the mark of the smallest error depend on the truth.
    rows: list[list[float | int | str | None]] = [
        ["truth (mean over time)", *(f"{v.mean():.4g}" for v in truth.values())]
    ]
    for name, values in predictions.items():
        series = statistics.turbulence(values, flow)
        errors = {k: statistics.relative_error(truth[k], series[k]) for k in truth}
        suffix = "" if name == MODEL else f"_{name}"
        metrics |= {f"{k}_error{suffix}": number(v) for k, v in errors.items()}
        rows.append([f"{name}: error (%)", *(number(100 * e) for e in errors.values())])
    return Table(
        title="Turbulence statistics",
        columns=["method", *truth],
        rows=rows,
        best="min",
        note=f"Viscosity {flow.viscosity:g}; volume means by quadrature; errors are means over "
        "time of the absolute difference, relative to the truth's mean.",
    )


def _energy_lines(case: Case, predictions, flow: statistics.Flow) -> list[Lines]:
    if flow.time is None:
        return []
    time = case.grid.nodes[flow.time].tolist()
    out = []
    shown = {"truth": case.truth, **{m: predictions[m] for m in (MODEL, LINEAR)}}
    energies = {name: statistics.turbulence(values, flow) for name, values in shown.items()}
    labels = {"kinetic_energy": "kinetic energy"}
    if flow.viscosity:
        labels["dissipation"] = "dissipation"
    for key, label in labels.items():
        along = {name: quantities[key] for name, quantities in energies.items()}
        out.append(
            Lines(
                title=f"Volume mean of the {label}",
                x=time,
                x_label=case.grid.dims[flow.time],
                y_label=label,
                series=curves(along, baselines=[LINEAR], references=["truth"]),
            )
        )
    return out


def _spectra(case: Case, predictions, config, metrics) -> tuple[Table, Lines]:
    """Return spectrum errors along the last periodic dim, and the spectra as lines."""
    grid = case.grid
    axis = [a for a, p in enumerate(grid.periods) if p is not None][-1]
    time = grid.dims.index(config.flow.time) if config.flow.time in grid.dims else None
    flow = statistics.Flow(grid, {}, 0.0, time if time != axis else None)
    velocity = [case.fields.index(f) for f in config.flow.velocity.values()]
    chosen = velocity or list(range(len(case.fields)))

    def total(values: Array) -> tuple[Array, Array]:
        parts = [statistics.spectrum(values[i], flow, axis) for i in chosen]
        return parts[0][0], np.sum([power for _, power in parts], 0).mean(0)

    wave, truth = total(case.truth)
    third = statistics.highest_third(len(wave))
    powers, apart = {"truth": truth[1:]}, {}
    for name, values in predictions.items():
        power = total(values)[1]
        errors = decades_apart(truth, power), decades_apart(truth, power, third)
        suffix = "" if name == MODEL else f"_{name}"
        metrics |= {f"{k}{suffix}": number(e) for k, e in zip(_SPECTRUM_NAMES, errors, strict=True)}
        powers[name], apart[name] = power[1:], errors
    what = "kinetic energy" if velocity else "all fields"
    table = error_table(
        f"Spectrum of {what} along {grid.dims[axis]}",
        ["error (decades)", "highest third (decades)"],
        apart,
        method="method",
        note="rms difference of log10 of the time-mean power; 0.3 is a factor of two.",
    )
    series = curves(powers, baselines=[n for n in apart if n != MODEL], references=["truth"])
    waves = f"wave number along {grid.dims[axis]}"
    return table, spectrum_lines(table.title, wave[1:], waves, series)


def _residuals(surrogate, case: Case, config, dataset, metrics) -> Table:
    """Return residuals of the prediction, from the derivatives of the model, and of the truth."""
    head = surrogate.header
    pde = PDE.parse(
        config.pde.equations,
        fields=head.fields,
        dims=head.dims,
        constants=config.pde.constants,
        attributes=numeric_attributes(dataset),
    )
    periodic = {d: p for d, p in zip(head.dims, head.periods, strict=True) if p is not None}
    report = check(pde, dataset, periodic=periodic)
    scales = {e.name: float(np.sqrt(sum(v**2 for v in e.terms.values()))) for e in report.equations}
    physics = surrogate.physics(pde, config.pde)
    coarse = surrogate.coarse(case.coarse_dataset())
    rng = np.random.default_rng(0)
    ends = [
        n[0] + p if p is not None else n[-1]
        for n, p in zip(case.grid.nodes, case.grid.periods, strict=True)
    ]
    start = np.array([n[0] for n in case.grid.nodes])
    points = start + (np.array(ends) - start) * rng.random((_RESIDUAL_POINTS, len(ends)))
    streams = torch.from_numpy(coarse.query(points, physics.plan))[:, None]
    residuals = physics.evaluate(streams, torch.from_numpy(points)[None])
    rows: list[list[float | int | str | None]] = []
    for name, residual in residuals.items():
        # `physics` divides by the terms of the training data; the column next to it, that of the
        # truth, is over the terms of this simulation.
        size = float(residual.square().mean().sqrt()) * physics.scales[name] / scales[name]
        metrics[f"residual_{name}"] = number(size)
        rows.append([name, number(size), number(report.ratios[name])])
    return Table(
        title="Residuals over terms",
        columns=["equation", "prediction", "truth"],
        rows=rows,
        note=" ".join(
            [
                "The prediction by derivatives of the model at random points, the truth by "
                "spectral and finite differences.",
                *report.warnings,
            ]
        ),
    )


def _maps(case: Case, predictions) -> tuple[xr.Dataset, list[Maps]]:
    """Return maps of each field between coarse frames, and a strip of frames of one field."""
    grid = case.grid
    if len(grid.dims) < 2:
        return xr.Dataset(), []
    frames = len(grid.nodes[0]) if len(grid.dims) > 2 else 1
    middle = tuple(n // 2 for n in grid.shape[1:-2])
    plane = grid.dims[-2:]
    low = interpolate_nearest(case.low, case.every, grid.shape)
    sources = {
        "low": low,
        "model": predictions[MODEL],
        "truth": case.truth,
        "error": predictions[MODEL] - case.truth,
    }
    if case.valid is not None:
        sources = {key: np.where(case.valid, v, np.nan) for key, v in sources.items()}
    variables = {}
    for i, field in enumerate(case.fields):
        for key, values in sources.items():
            cut = values[i] if len(grid.dims) == 2 else values[i][(slice(None), *middle)]
            dims = plane if len(grid.dims) == 2 else (grid.dims[0], *plane)
            attributes = {"units": case.units[i]}
            variables[f"{field}_{key}"] = (dims, cut.astype(np.float32), attributes)
    coordinates = {d: grid.nodes[grid.dims.index(d)] for d in {grid.dims[0], *plane}}
    dataset = xr.Dataset(variables, coords=coordinates)
    frame = min(frames - 1, max(0, case.every[0] + case.every[0] // 2))
    labels = {"low": "coarse nodes", "model": "prediction", "truth": "truth", "error": "error"}
    drawn = []
    at = {grid.dims[0]: frame} if len(grid.dims) > 2 else {}
    when = ", halfway between two coarse frames" if at else ""
    for first in range(0, len(case.fields), _ROWS):
        chosen = case.fields[first : first + _ROWS]
        panels: list[Panel] = []
        for field in chosen:
            panels += beside_truth(
                {key: f"{field}: {label}" for key, label in labels.items()},
                prefix=f"{field}_",
                scale=field,
                select=at,
                unit=case.units[case.fields.index(field)],
            )
        drawn.append(Maps(title=f"{', '.join(chosen)}{when}", panels=panels, columns=len(labels)))
    if len(grid.dims) > 2:
        drawn.append(_animation(case, grid.dims[0], labels))
        drawn.append(_strip(case, grid.dims[0], frames))
    return dataset, drawn


def _animation(case: Case, dim: str, labels: Mapping[str, str]) -> Maps:
    field = _shown_over_time(case)
    return Maps(
        title=f"{field} in motion",
        panels=beside_truth(labels, prefix=f"{field}_", scale=field),
        columns=4,
        animate=dim,
        unit=case.units[case.fields.index(field)],
        note=f"Coarse values exist in one of {case.every[0]} frames; the nearest ones are shown.",
    )


def _shown_over_time(case: Case) -> str:
    """Return the field of the animation: the second one, as the first is often the pressure."""
    return case.fields[min(1, len(case.fields) - 1)]


def _strip(case: Case, dim: str, frames: int) -> Maps:
    field = _shown_over_time(case)
    chosen = np.unique(np.linspace(0, frames - 1, _STRIP).astype(int))
    panels = [
        Panel(
            variable=f"{field}_{key}",
            select={dim: int(i)},
            label=f"{label}, {dim} = {case.grid.nodes[0][i]:g}",
            scale=field,
        )
        for key, label in (("truth", "truth"), ("model", "prediction"))
        for i in chosen
    ]
    return Maps(
        title=f"{field} over time",
        panels=panels,
        columns=len(chosen),
        unit=case.units[case.fields.index(field)],
    )


def interpolate_nearest(coarse: Array, every: Any, shape: Any) -> Array:
    """Return the nearest coarse value at each fine node, for maps of the input."""
    out = coarse
    for axis, (step, count) in enumerate(zip(every, shape, strict=True), 1):
        index = np.minimum((np.arange(count) + step // 2) // step, out.shape[axis] - 1)
        out = out.take(index, axis)
    return out
