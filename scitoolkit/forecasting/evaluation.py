"""Evaluation of a forecast surrogate on test windows: metrics, tables, figures and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.core.results import (
    Figure,
    Lines,
    Maps,
    Panel,
    Results,
    Role,
    Series,
    Table,
    Verdict,
    display_unit,
    number,
)
from scitoolkit.forecasting import metrics, scores
from scitoolkit.forecasting.backtest import Past, refitted, spread_origins
from scitoolkit.forecasting.config import BacktestConfig
from scitoolkit.forecasting.data import FieldData
from scitoolkit.forecasting.fields import CodedSnapshots, named_parts, unit_of
from scitoolkit.forecasting.fit_report import (
    chosen_sentence,
    damped_anomaly_table,
    network_sentences,
    pod_spectrum,
    pod_table,
    selection_table,
    with_unit_of,
)
from scitoolkit.forecasting.forecasters import Forecaster
from scitoolkit.forecasting.intervals import QUANTILES
from scitoolkit.forecasting.surrogate import ForecastSurrogate
from scitoolkit.forecasting.windows import Array, Windows
from scitoolkit.surrogate.sections import beside_truth, curves, error_table, weakest

NOMINAL = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
SURROGATE = "surrogate"
_DAMPED = "climatology + damped anomaly"


@dataclass
class ForecastEvaluation:
    """Evaluation of a surrogate and its baselines on test windows.

    Attributes:
        surrogate: the surrogate.
        coded: coded field.
        windows: test windows of the coded field.
        baselines: fitted baselines by name.
        record: of the selection and the fit.
        adaptive: whether intervals follow the errors of earlier test windows.
        notes: sentences for the summary.
        backtest: origins with their own fits; None for none.
        past: what a backtest fits at each of them.
    """

    surrogate: ForecastSurrogate
    coded: CodedSnapshots
    windows: Windows
    baselines: Mapping[str, Forecaster]
    record: Mapping[str, Any]
    adaptive: bool = False
    notes: Sequence[str] = ()
    backtest: BacktestConfig | None = None
    past: Past | None = None

    def results(self, workflow: str) -> tuple[Results, xr.Dataset]:
        """Return the results and the fields shown in their maps."""
        coding = self.surrogate.coding
        self.field: FieldData = self.coded.data.fields()
        # Parameters of simulations are the last cells; they are neither scored nor shown.
        self.cells: int = sum(v.cells for v in coding.fields)
        self.weights: Array = self.surrogate.weights[: self.cells]
        # Modes and intervals are defined for coded values, scores for values of the file.
        self.coded_forecasts: dict[str, Array] = {
            name: m.predict(self.windows) for name, m in self.baselines.items()
        }
        self.coded_forecasts[SURROGATE] = self.surrogate.forecast(self.windows)
        self.truth: Array = self._as_scored(self.windows.targets())
        self.forecasts: dict[str, Array] = {
            n: self._as_scored(f) for n, f in self.coded_forecasts.items()
        }
        self.climatology: Array = self.surrogate.climatology.predict(self.windows)
        self.unit: str = unit_of(coding)
        self.rmse: dict[str, Array] = {
            name: metrics.rmse_per_lead(self.truth, forecast, self.weights)
            for name, forecast in self.forecasts.items()
        }
        self.floor: Array = self._floor()
        maps = self._fields()
        figures, backtest = self._scores(), self._backtest()
        if backtest:
            figures["rmse_backtest"] = next(r[-1] for r in backtest[0].rows if r[0] == SURROGATE)
        return Results(
            title=f"{workflow}: forecasts of {self.field.name}, {self.windows.leads} steps ahead",
            verdict=self._verdict(),
            summary=self._summary(figures, maps),
            metrics=figures,
            units={name: self.unit for name in figures if name.startswith(("rmse", "crps"))},
            tables=[
                self._rmse_table(),
                *backtest,
                *self._variables(),
                self._score_table(),
                self._r2_table(),
                selection_table(self.record, self.unit),
                damped_anomaly_table(self.record, self.unit),
                pod_table(self.record, _overall(self.floor), self.unit),
            ],
            figures=self._figures(maps),
        ), maps

    def _figures(self, maps: xr.Dataset) -> list[Figure]:
        shown = self._maps(maps)
        return [
            self._skill(),
            *shown[:1],
            self._calibration(),
            pod_spectrum(self.record),
            *shown[1:],
        ]

    def _as_scored(self, coded: Array, windows: Windows | None = None) -> Array:
        """Return values as scored: in the file's unit, or coded (scaled) for several variables.

        Args:
            coded: (window, lead, cell).
            windows: of the values; None for all test windows.
        """
        several = len(self.surrogate.coding.fields) > 1
        shown = coded if several else self.coded.physical(coded, windows or self.windows)
        return shown[..., : self.cells]

    def _floor(self) -> Array:
        """Return (lead,) RMSE of the truth projected on the modes: the truncation error."""
        anomaly = self.windows.targets() - self.climatology
        projected = self.surrogate.project(anomaly) @ self.surrogate.modes
        shown = self._as_scored(self.climatology + projected)
        return metrics.rmse_per_lead(self.truth, shown, self.weights)

    def _bounds(self, level: float) -> tuple[Array, Array]:
        low, high = self.surrogate.intervals(level)
        if self.adaptive:
            factors = self.surrogate.factors(self.windows, level)
            low, high = factors * low, factors * high
        centre = self.coded_forecasts[SURROGATE]
        return self._as_scored(centre + low), self._as_scored(centre + high)

    def _coverage(self, level: float) -> float:
        low, high = self._bounds(level)
        inside = ((self.truth >= low) & (self.truth <= high)).mean(axis=(0, 1))
        return float(inside @ self.weights / self.weights.sum())

    def _crps(self) -> Array:
        """Return (lead,) CRPS of the forecast dressed with ten quantiles of its errors."""
        out = []
        weights = self.weights / self.weights.sum()
        levels = np.linspace(0.05, 0.95, 10)
        rows = self.surrogate.quantiles
        steps = np.stack([[np.interp(q, QUANTILES, row) for row in rows] for q in levels])
        dressed = [
            self._as_scored(self.coded_forecasts[SURROGATE] + step[:, None] * self.surrogate.spread)
            for step in steps
        ]
        for lead in range(self.windows.leads):
            members = np.stack([member[:, lead] for member in dressed])
            out.append(
                float((metrics.crps_ensemble(self.truth[:, lead], members) @ weights).mean())
            )
        return np.array(out)

    def _scores(self) -> dict[str, float | int | str | None]:
        acc = metrics.anomaly_correlation(
            self.truth, self.forecasts[SURROGATE], self._as_scored(self.climatology), self.weights
        )
        targets = self.windows.targets()
        truth, forecast = (
            self.surrogate.project(x) for x in (targets, self.coded_forecasts[SURROGATE])
        )
        figures: dict[str, float | int | str | None] = {
            f"rmse_lead{lead + 1}": number(v) for lead, v in enumerate(self.rmse[SURROGATE])
        }
        figures |= {
            "rmse": _overall(self.rmse[SURROGATE]),
            "r2_uniform": number(metrics.r2_uniform(truth, forecast)),
            "r2_variance_weighted": number(metrics.r2_variance_weighted(truth, forecast)),
            # Anomalies of the climatology itself are zero and have no correlation.
            "acc": number(np.nanmean(acc)) if np.isfinite(acc).any() else None,
            "crps": number(self._crps().mean()),
            "coverage90": number(self._coverage(0.9)),
            "test_windows": len(self.windows),
        }
        if _DAMPED in self.rmse:
            figures["rmse_damped_anomaly"] = _overall(self.rmse[_DAMPED])
            ratio = self.rmse[SURROGATE] / np.maximum(self.rmse[_DAMPED], 1e-300)
            figures["largest_ratio_to_damped_anomaly"] = number(ratio.max())
        return figures

    def _summary(self, figures: Mapping[str, Any], maps: xr.Dataset) -> list[str]:
        unit = f" {display_unit(self.unit)}".rstrip()
        lines = [
            f"Test RMSE over {self.windows.leads} leads: {figures['rmse']:.4g}{unit} "
            f"({len(self.windows)} windows, area-weighted){self._best_other()}.",
            chosen_sentence(self.record),
            *self._weakest(maps),
            *network_sentences(self.record),
        ]
        lines += [f"Warning: {line}." for line in self.record.get("warnings", [])]
        lines += [f"{line}." for line in self.notes]
        if self.field.partly_missing:
            lines.append(
                f"{self.field.partly_missing} cells with values at some times only are left out."
            )
        return lines

    def _weakest(self, maps: xr.Dataset) -> list[str]:
        """Return sentences on the leads and the cells in which the error is largest."""
        unit = display_unit(self.unit)
        by_lead = {f"lead {k + 1}": float(v) for k, v in enumerate(self.rmse[SURROGATE])}
        lines = weakest("RMSE by lead", by_lead, unit)
        best = self._best_baseline()
        if self.cells < 2 or not best:
            return lines
        ours, theirs = (
            ((self.truth - self.forecasts[name]) ** 2).mean(axis=(0, 1))
            for name in (SURROGATE, best)
        )
        error = (maps["rmse"] ** 2).mean("lead") ** 0.5
        cell = error.isel(error.argmax(error.dims))
        place = ", ".join(
            f"{dim} {_coordinate(cell.coords[dim].values)}"
            for dim in error.dims
            if dim in cell.coords
        )
        rmse = f"{cell.item():.3g} {unit}".rstrip()
        at = f", at {place}" if place else ""
        share = 100 * (ours > theirs).mean()
        lines.append(
            f"Worse than {best} in {share:.0f} % of the cells; largest RMSE of a cell: {rmse}{at}."
        )
        return lines

    def _best_other(self) -> str:
        """Return a clause with the best baseline on the test part and the significance."""
        others = {n: _overall(values) for n, values in self.rmse.items() if n != SURROGATE}
        if not others:
            return ""
        best = self._best_baseline()
        low, high = self._difference(best)
        better = _overall(self.rmse[SURROGATE]) <= others[best]
        noise = "within noise" if low <= 0 <= high else "beyond noise"
        return (
            f"; {'best baseline' if better else 'better'}: {best}, {others[best]:.4g} ({noise}: "
            f"90 % interval of the RMSE difference by block bootstrap: {low:.2g} to {high:.2g})"
        )

    def _difference(self, other: str) -> tuple[float, float]:
        """Return the 90 % block-bootstrap interval of the surrogate's RMSE minus another's.

        It is wider by the rounding of the file's values, unless these were scaled.
        """
        ours, theirs = (self._squares(self.forecasts[name]) for name in (SURROGATE, other))
        low, high = metrics.rmse_difference(ours, theirs, 2 * self.windows.leads)
        several = len(self.surrogate.coding.fields) > 1
        rounding = 0.0 if several else metrics.rounding_of(self.field.series.values)
        return low - rounding, high + rounding

    def _squares(self, forecast: Array) -> Array:
        """Return (window,) area-weighted mean squared errors over all leads."""
        share = self.weights / self.weights.sum()
        return ((self.truth - forecast) ** 2).mean(axis=1) @ share

    def _score_table(self) -> Table:
        weights, climatology = self.weights, self._as_scored(self.climatology)
        reference, away = self._squares(climatology), self.truth - climatology
        scale = float(np.sqrt(reference.mean()))
        rows: list[dict[str, Any]] = []
        for name, forecast in self.forecasts.items():
            skill, low, high = scores.skill(
                self._squares(forecast), reference, 2 * self.windows.leads
            )
            acc = metrics.anomaly_correlation(self.truth, forecast, climatology, weights)
            spectrum = scores.spectral_error(self.truth, forecast, self.field.grid.shape)
            rows.append(
                {
                    "forecast": name,
                    "skill": number(skill),
                    "5 %": number(low),
                    "95 %": number(high),
                    f"ACC at lead {self.windows.leads}": number(acc[-1]),
                    "extremes": number(scores.extremes(away, forecast - climatology)),
                    "spectrum": None if spectrum is None else number(spectrum),
                    "valid leads": number(scores.valid_steps(self.truth, forecast, weights, scale)),
                }
            )
        return Table(
            title="Skill on the test split",
            columns=[*rows[0]],
            rows=[[*row.values()] for row in rows],
            note="Skill: 1 - RMSE / RMSE of the climatology, with a 90 % interval by bootstrap "
            "of blocks of windows. Extremes: symmetric extremal dependence index of the upper and "
            "lower 5 % of anomalies (1 perfect, 0 chance). Spectrum: root mean square of log10 of "
            "the ratio of power spectra at the last lead (0 perfect; grids without mask). Valid "
            "leads: median number of leads before the error exceeds 0.4 deviations of the truth.",
        )

    def _verdict(self) -> Verdict | None:
        best = self._best_baseline()
        low, high = self._difference(best) if best else (0.0, 0.0)
        return Verdict.among(
            {name: _overall(values) for name, values in self.rmse.items()},
            SURROGATE,
            f"RMSE over {self.windows.leads} leads",
            unit=self.unit,
            tie=bool(best) and low <= 0 <= high,
        )

    def _best_baseline(self) -> str:
        """Return the baseline with the lowest RMSE over all leads, "" without a baseline."""
        others = [name for name in self.rmse if name != SURROGATE]
        return min(others, key=lambda name: _overall(self.rmse[name]), default="")

    def _leads(self) -> list[str]:
        return [f"lead {lead + 1}" for lead in range(self.windows.leads)]

    def _rmse_table(self) -> Table:
        low, high = (f"{extreme(self.floor):.3g}" for extreme in (np.min, np.max))
        return error_table(
            with_unit_of("RMSE on the test split", self.unit),
            [*self._leads(), "all"],
            {name: [*values, _overall(values)] for name, values in self.rmse.items()},
            note="Area-weighted over the unmasked cells. A forecast within the "
            f"{len(self.surrogate.modes)} modes has at least their truncation error: "
            f"{low if low == high else f'{low} to {high}, by lead'}.",
        )

    def _backtest(self) -> list[Table]:
        """Return a table of the RMSE per lead at the origins of the backtest, if there is one."""
        if self.backtest is None or self.past is None:
            return []
        windows, everything = spread_origins(self.windows, self.backtest), {**self.baselines}
        everything[SURROGATE] = self.surrogate.forecaster
        single = {name: model.predict(windows) for name, model in everything.items()}
        forecasts, fits = single, "one fit to train + validation"
        if self.backtest.refit:
            forecasts = refitted(everything, self.past, windows)
            forecasts[f"{SURROGATE}, one fit"] = single[SURROGATE]
            fits = "fitted again to all steps before each origin, with the same settings"
        truth = self._as_scored(windows.targets(), windows)
        errors: dict[str, list[float]] = {}
        for name, coded in forecasts.items():
            shown = self._as_scored(coded, windows)
            values = metrics.rmse_per_lead(truth, shown, self.weights)
            errors[name] = [*values, _overall(values)]
        return [
            error_table(
                with_unit_of(
                    f"Backtest: RMSE at {len(windows)} origins of the test split", self.unit
                ),
                [*self._leads(), "all"],
                errors,
                note=f"Forecasters are {fits}.",
            )
        ]

    def _variables(self) -> list[Table]:
        """Return a table of the RMSE of each variable in its unit, if there are several."""
        parts = named_parts(self.surrogate.coding)
        if len(parts) == 1:
            return []
        truth = self.coded.physical(self.windows.targets(), self.windows)
        shown: dict[str, list[float]] = {}
        for name, coded in self.coded_forecasts.items():
            forecast = self.coded.physical(coded, self.windows)
            errors = [
                metrics.rmse_per_lead(truth[..., at], forecast[..., at], self.weights[at])
                for _, _, at in parts
            ]
            shown[name] = [_overall(values) for values in errors]
        titles = [f"{name} [{unit}]" if unit else name for name, unit, _ in parts]
        return [
            error_table(
                "RMSE of each variable over all leads",
                titles,
                shown,
                note="All other scores use variables divided by their deviations on the train "
                "split.",
            )
        ]

    def _r2_table(self) -> Table:
        truth = self.surrogate.project(self.windows.targets())
        rows: list[list[Any]] = []
        for name, forecast in self.coded_forecasts.items():
            coefficients = self.surrogate.project(forecast)
            per_mode = np.nanmean(metrics.r2_per_output(truth, coefficients), axis=0)
            rows.append(
                [
                    name,
                    number(metrics.r2_uniform(truth, coefficients)),
                    number(metrics.r2_variance_weighted(truth, coefficients)),
                    *map(number, per_mode[:8]),
                ]
            )
        modes = [f"mode {k + 1}" for k in range(min(8, truth.shape[2]))]
        return Table(
            title="R² of the mode coefficients on the test split",
            columns=["forecast", "uniform", "variance-weighted", *modes],
            rows=rows,
            best="max",
            note="Uniform: mean over modes and leads of 1 - SSres/SStot.",
        )

    def _skill(self) -> Lines:
        """Return the error against lead: the surrogate, main baselines labelled, others in grey."""
        x = [float(lead + 1) for lead in range(self.windows.leads)]
        best = self._best_baseline()
        labelled = {SURROGATE, best, "climatology", self._persistence()}
        scale = max(self.rmse[name].max() for name in labelled if name in self.rmse)
        far = [n for n, values in self.rmse.items() if n not in labelled and values.max() > scale]
        series = []
        for name, values in self.rmse.items():
            if name in far:
                continue
            role: Role = "main" if name == SURROGATE else "baseline"
            label = f"best baseline: {name}" if name == best else name
            series.append(
                Series(
                    label=label,
                    y=[number(v) for v in values],
                    role=role if name in labelled else "context",
                )
            )
        floor = [number(v) for v in self.floor]
        series.append(Series(label="truncation floor", y=floor, role="reference"))
        notes = ["Thin grey lines: the other baselines of the table."]
        if far:
            notes.append(f"Larger errors are not drawn: {', '.join(far)}.")
        return Lines(
            title="Error against lead",
            x=x,
            x_label="lead [steps]",
            y_label=with_unit_of("RMSE", self.unit),
            series=series,
            log_y=self._wide(scale),
            note=" ".join(notes),
        )

    def _persistence(self) -> str:
        """Return the better of persistence and persistence of the anomaly."""
        names = [n for n in ("climatology + anomaly persistence", "persistence") if n in self.rmse]
        return min(names, key=lambda name: _overall(self.rmse[name]), default="")

    def _wide(self, largest: float) -> bool:
        """Return whether the surrogate's errors would be at zero on a linear axis."""
        smallest = float(self.rmse[SURROGATE].min())
        return bool(smallest > 0 and largest > 100 * smallest)

    def _calibration(self) -> Lines:
        coverage = [self._coverage(level) for level in NOMINAL]
        return Lines(
            title="Interval calibration",
            x=list(NOMINAL),
            x_label="nominal coverage",
            y_label="share of truths inside",
            series=curves({SURROGATE: coverage, "ideal": NOMINAL}, references=["ideal"]),
        )

    def _fields(self) -> xr.Dataset:
        last = {"truth": self.truth[-1], "forecast": self.forecasts[SURROGATE][-1]}
        last["error"] = last["forecast"] - last["truth"]
        unit = {"units": self.unit} if self.unit else {}
        out = {
            name: self.field.to_grid(values, ("lead",)).assign_attrs(unit)
            for name, values in last.items()
        }
        out["modes"] = self.field.to_grid(self.surrogate.modes[:, : self.cells], ("mode",))
        per_cell = np.sqrt(((self.truth - self.forecasts[SURROGATE]) ** 2).mean(axis=0))
        out["rmse"] = self.field.to_grid(per_cell, ("lead",)).assign_attrs(unit)
        return xr.Dataset(out, coords={"lead": np.arange(1, self.windows.leads + 1)})

    def _along_the_dim(self) -> Maps:
        """Return maps of lead and position of the last test window of a field with one dim."""
        panels = beside_truth({name: name for name in ("truth", "forecast", "error")})
        return Maps(title="Last test window: truth, forecast, error", panels=panels, unit=self.unit)

    def _maps(self, maps: xr.Dataset) -> list[Maps]:
        """Return maps of a field with one or two spatial dims, else nothing."""
        sizes = [maps.sizes[d] for d in self.field.grid.dims]
        if len(sizes) == 1 and min(sizes[0], self.windows.leads) > 1:
            return [self._along_the_dim()]
        if len(sizes) != 2 or min(sizes) < 2:
            return []
        leads = sorted({0, self.windows.leads - 1})
        steps = self.windows.starts[-1] + self.windows.inputs + np.asarray(leads)
        panels: list[Panel] = []
        for lead, step in zip(leads, steps, strict=True):
            when = f"{_date(self.field.times.values[step])} (lead {lead + 1})"
            labels = {name: f"{name}, {when}" for name in ("truth", "forecast", "error")}
            panels += beside_truth(labels, select={"lead": lead})
        modes = [
            Panel(
                variable="modes",
                select={"mode": k},
                label=f"mode {k + 1}",
                scale=f"mode{k}",
                diverging=True,
            )
            for k in range(min(6, len(self.surrogate.modes)))
        ]
        return [
            Maps(title="Last test window: truth, forecast, error", panels=panels, unit=self.unit),
            Maps(title="POD modes, scaled to unit variance", panels=modes, unit=""),
        ]


def _overall(values: Array) -> float:
    return float(np.sqrt((np.asarray(values) ** 2).mean()))


def _coordinate(value: Any) -> str:
    number_like = np.issubdtype(np.asarray(value).dtype, np.number)
    return f"{float(value):.6g}" if number_like else str(value)


def _date(time: Any) -> str:
    return str(time)[:10]
