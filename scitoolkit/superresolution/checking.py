"""Check of equations on the true data before a training.

A wrong axis, unit or time scale makes the residual of an equation on the true solution as large as
its terms; minimising that residual would move a model away from the truth.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import Table, number
from scitoolkit.ops.taylor import MultiIndex
from scitoolkit.superresolution.differentiate import STENCIL, differentiate, is_spectral
from scitoolkit.superresolution.equations import PDE, Key, Residuals
from scitoolkit.superresolution.fitted_constants import FittedConstant, fit, with_constants
from scitoolkit.superresolution.grid import RectilinearGrid, grid_of, values_of

Array = np.ndarray
TOLERANCE = 0.2
_COARSE = 0.1
_HINT = 0.5
_MAX_FRAMES = 24


@dataclass(frozen=True)
class EquationCheck:
    """One equation on true data.

    Attributes:
        name: of the equation.
        ratio: rms of the residual over the root of the summed mean squares of its terms.
        terms: {text of a term: its rms}.
        message: the likely error; empty if the equation holds.
    """

    name: str
    ratio: float
    terms: Mapping[str, float]
    message: str = ""


@dataclass(frozen=True)
class CheckReport:
    """Result of `check`.

    Attributes:
        equations: one entry per equation.
        warnings: remarks on all equations, such as coarse sampling.
        tolerance: ratio up to which an equation counts as satisfied.
        constants: constants of the equations, fitted to the data over all equations.
    """

    equations: Sequence[EquationCheck]
    warnings: Sequence[str] = field(default_factory=list)
    tolerance: float = TOLERANCE
    constants: Sequence[FittedConstant] = field(default_factory=list)

    @property
    def satisfied(self) -> bool:
        """Return whether every equation holds within the tolerance."""
        return all(e.ratio <= self.tolerance for e in self.equations)

    @property
    def ratios(self) -> dict[str, float]:
        """Return {equation: residual over its terms}."""
        return {e.name: e.ratio for e in self.equations}

    def table(self) -> Table:
        """Return the table of a report."""
        rows: list[list[float | int | str | None]] = [
            [
                e.name,
                number(e.ratio),
                "holds" if e.ratio <= self.tolerance else "SUSPICIOUS",
                e.message or "-",
            ]
            for e in self.equations
        ]
        return Table(
            title="Equations on the true data",
            columns=["equation", "residual / terms", "verdict", "remark"],
            rows=rows,
            note=" ".join([*self.warnings, *(f"{c}." for c in self.constants)]),
        )

    def __str__(self) -> str:
        """Return the table as text."""
        lines = []
        for e in self.equations:
            verdict = "holds" if e.ratio <= self.tolerance else "SUSPICIOUS"
            lines.append(f"{e.name:20s} residual/terms {e.ratio:9.2e}  {verdict}")
            if e.message:
                lines.append(f"{'':20s} {e.message}")
        lines += [f"{'constant':20s} {c}" for c in self.constants]
        return "\n".join([*lines, *(f"warning: {w}" for w in self.warnings)])


def check(
    pde: PDE,
    dataset: xr.Dataset,
    *,
    periodic: Mapping[str, float] | None = None,
    tolerance: float = TOLERANCE,
    where: str = "dataset",
) -> CheckReport:
    """Measure the residual of every equation on the true data against the size of its terms.

    Derivatives are computed by `differentiate`; points with one-sided differences are left out, and
    means are weighted by cell volumes. The result does not depend on the order of the dims.

    Args:
        pde: the equations.
        dataset: fields with coordinates.
        periodic: length of each periodic dim.
        tolerance: largest ratio of an equation that holds.
        where: file to name in messages.

    Raises:
        DataError: fields or dims of the equations are missing from the data, or contain NaN.

    Example:
        >>> t, x = np.linspace(0, 1, 40), np.linspace(0, 1, 64, endpoint=False)
        >>> u = np.sin(2 * np.pi * (x - t[:, None]))
        >>> data = xr.Dataset({"u": (("t", "x"), u)}, coords={"t": t, "x": x})
        >>> pde = PDE.parse("dif(u,t) + dif(u,x)", fields=["u"], dims=["t", "x"])
        >>> check(pde, data, periodic={"x": 1.0}).satisfied
        True
    """
    grid = grid_of(dataset, pde.names.fields, pde.names.dims, periodic, where)
    dataset = _head(dataset, grid)
    grid = grid_of(dataset, pde.names.fields, pde.names.dims, periodic, where)
    data = _Derivatives(values_of(dataset, pde.names.fields, grid, where), pde, grid)
    residuals = Residuals(pde, combine=False)
    ratios, terms = _measure(residuals, data)
    warnings = _sampling_warnings(residuals, data)
    constants = _fitted(pde, data, terms)
    checks = []
    for name in pde.expressions:
        message = ""
        if not ratios[name] <= tolerance:
            message = _wrong_constants(name, pde, data, ratios[name], constants) or _explain(
                name, residuals, data, ratios[name], terms[name]
            )
        checks.append(EquationCheck(name, ratios[name], terms[name], message))
    return CheckReport(checks, warnings, tolerance, constants)


def _fitted(
    pde: PDE, data: _Derivatives, terms: Mapping[str, Mapping[str, float]]
) -> list[FittedConstant]:
    """Return the constants fitted to the data, with residuals relative to terms."""
    # Equations of different units are fitted together, each in sizes of its terms.
    scale = {n: float(np.sqrt(sum(v**2 for v in t.values()))) for n, t in terms.items()}

    def evaluate(changed: PDE) -> dict[str, Array]:
        residuals = Residuals(changed, combine=False)
        residual_of = residuals.evaluate(data.all(residuals.keys), data.coordinates())
        return {n: np.asarray(r) / scale[n] for n, r in residual_of.items()}

    return fit(pde, evaluate, data.weights)


def _wrong_constants(
    name: str, pde: PDE, data: _Derivatives, ratio: float, constants: Sequence[FittedConstant]
) -> str:
    """Return a message if the fitted constants reduce the residual considerably, else ""."""
    wrong = [c for c in constants if not c.agrees]
    if not wrong:
        return ""
    changed = with_constants(pde, {c.name: c.value for c in wrong})
    fitted = _measure(Residuals(changed, combine=False), data)[0][name]
    if fitted >= _HINT * ratio:
        return ""
    values = ", ".join(f"{c.name} = {c.value:.4g} +- {c.error:.1g}" for c in wrong)
    return f"with {values}, fitted to all equations together, it would be {fitted:.1e}"


def _head(dataset: xr.Dataset, grid: RectilinearGrid) -> xr.Dataset:
    """Return the first frames along the longest dim with finite differences.

    They suffice to tell whether an equation holds, and the choice does not depend on the order of
    the dims.
    """
    local = [
        (len(nodes), dim)
        for dim, nodes, period in zip(grid.dims, grid.nodes, grid.periods, strict=True)
        if not is_spectral(nodes, period) and period is None
    ]
    if not local or len(grid.dims) < 2:
        return dataset
    return dataset.isel({max(local)[1]: slice(0, _MAX_FRAMES)})


class _Derivatives:
    """Derivatives of gridded fields, each computed once; dims and fields may be exchanged."""

    def __init__(
        self, values: Array, pde: PDE, grid: RectilinearGrid, stencil: int = STENCIL
    ) -> None:
        self.values, self.pde, self.grid, self.stencil = values, pde, grid, stencil
        self._made: dict[tuple[str, MultiIndex], Array] = {}
        self.interior = tuple(
            slice(None)
            # Half a stencil at each end is left out, unless too few nodes would remain.
            if is_spectral(n, p) or p is not None or len(n) < 3 * STENCIL // 2
            else slice(STENCIL // 2, -(STENCIL // 2))
            for n, p in zip(grid.nodes, grid.periods, strict=True)
        )
        weights = np.ones(())
        for axis, share in enumerate(grid.quadrature()):
            shape = [1] * len(grid.dims)
            shape[axis] = -1
            weights = weights * share.reshape(shape)
        self.weights = np.broadcast_to(weights, grid.shape)[self.interior]

    def get(self, name: str, index: MultiIndex) -> Array:
        if (name, index) not in self._made:
            out = self.values[self.pde.names.fields.index(name)].astype(np.float64)
            for axis, order in enumerate(index):
                if order:
                    out = differentiate(
                        out,
                        self.grid.nodes[axis],
                        axis,
                        order,
                        period=self.grid.periods[axis],
                        stencil=self.stencil,
                    )
            self._made[name, index] = out
        return self._made[name, index]

    def all(
        self,
        keys: Sequence[Key],
        order: Sequence[int] | None = None,
        renamed: Mapping[str, str] | None = None,
    ) -> dict[Key, Array]:
        """Return the array of every key; `order[i]` is the dim that replaces dim i."""
        out = {}
        for key in keys:
            name, index = key[0], key[1][0][0]
            if order is not None:
                # The derivative that the equation takes along dim i is taken along order[i]: its
                # order moves there.
                index = tuple(index[order.index(axis)] for axis in range(len(index)))
            out[key] = self.get((renamed or {}).get(name, name), index)[self.interior]
        return out

    def coordinates(self) -> dict[str, Array]:
        nodes_of = {}
        for axis, (dim, nodes) in enumerate(zip(self.grid.dims, self.grid.nodes, strict=True)):
            shape = [1] * len(self.grid.dims)
            shape[axis] = -1
            nodes_of[dim] = nodes[self.interior[axis]].reshape(shape)
        return nodes_of

    def rms(self, values: Array) -> float:
        square = np.broadcast_to(np.square(values), self.weights.shape)
        return float(np.sqrt((square * self.weights).sum() / self.weights.sum()))


def _measure(
    residuals: Residuals, data: _Derivatives, **guess
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    values = data.all(residuals.keys, **guess)
    coordinates = data.coordinates()
    rms = {name: data.rms(r) for name, r in residuals.evaluate(values, coordinates).items()}
    terms = {
        name: {text: data.rms(t) for text, t in parts.items()}
        for name, parts in residuals.terms(values, coordinates).items()
    }
    ratios = {}
    for name, size in rms.items():
        total = float(np.sqrt(sum(v**2 for v in terms[name].values())))
        if total == 0:
            raise DataError("all terms vanish: the fields are constant", where=f"equation {name}")
        # Of terms that cancel exactly the ratio is 0; of independent ones about 1.
        ratios[name] = size / total
    return ratios, terms


def _explain(name: str, residuals: Residuals, data: _Derivatives, ratio: float, terms) -> str:
    """Return the likely error: exchanged dims, exchanged fields, or the factor of one term."""
    guesses = [*_exchanged_dims(name, residuals, data), *_exchanged_fields(name, residuals, data)]
    best = min(guesses, default=(1.0, ""))
    if best[0] < _HINT * ratio:
        return f"{best[1]} it would be {best[0]:.1e}: are the names exchanged?"
    scaled = _scaled_term(name, residuals, data)
    if scaled and scaled[0] < _HINT * ratio:
        return (
            f"with the term {scaled[1]} times {scaled[2]:.3g} it would be {scaled[0]:.1e}: a unit,"
            " a constant, or the spacing of a coordinate?"
        )
    largest = max(terms, key=terms.get)
    return f"largest term {largest} (rms {terms[largest]:.3g}); check axes, units and sampling"


def _exchanged_dims(name: str, residuals: Residuals, data: _Derivatives):
    dims = data.grid.dims
    for a, b in itertools.combinations(range(len(dims)), 2):
        order = list(range(len(dims)))
        order[a], order[b] = order[b], order[a]
        try:
            ratio = _measure(residuals, data, order=order)[0][name]
        except DataError:  # too few nodes along one of them for the other's derivatives
            continue
        yield ratio, f"with the dims {dims[a]} and {dims[b]} exchanged"


def _exchanged_fields(name: str, residuals: Residuals, data: _Derivatives):
    for a, b in itertools.combinations(data.pde.names.fields, 2):
        renamed = {a: b, b: a}
        yield (
            _measure(residuals, data, renamed=renamed)[0][name],
            (f"with the fields {a} and {b} exchanged"),
        )


def _scaled_term(name: str, residuals: Residuals, data: _Derivatives):
    """Return the smallest ratio after scaling one term, the term, and its factor."""
    values = data.all(residuals.keys)
    parts = residuals.terms(values, data.coordinates())[name]
    if len(parts) < 2:
        return None
    shape = data.weights.shape
    candidates = []
    for text, part in parts.items():
        one = np.broadcast_to(part, shape)
        rest = sum(np.broadcast_to(p, shape) for t, p in parts.items() if t != text)
        power = float((one * one * data.weights).sum())
        if power > 0:
            # Least squares: |rest + factor one|^2 is least for factor = -<one, rest> / <one, one>.
            factor = -float((one * rest * data.weights).sum()) / power
            size = np.sqrt(
                sum(data.rms(p) ** 2 for t, p in parts.items() if t != text)
                + (factor * data.rms(part)) ** 2
            )
            if size > 0:
                candidates.append((data.rms(rest + factor * one) / float(size), text, factor))
    return min(candidates, default=None)


def _sampling_warnings(residuals: Residuals, data: _Derivatives) -> list[str]:
    """Return warnings of dims along which stencils of different order disagree."""
    out = []
    for axis, (dim, nodes) in enumerate(zip(data.grid.dims, data.grid.nodes, strict=True)):
        if is_spectral(nodes, data.grid.periods[axis]):
            continue
        # Two nodes less are two orders less: where both agree, the data resolve the derivative.
        stencil = max(3, min(STENCIL, len(nodes)) - 2)
        coarse = _Derivatives(data.values, data.pde, data.grid, stencil)
        worst = 0.0
        for name, op in residuals.keys:
            index = op[0][0]
            if index[axis] and not any(k for i, k in enumerate(index) if i != axis):
                fine = data.get(name, index)[data.interior]
                change = data.rms(fine - coarse.get(name, index)[data.interior])
                worst = max(worst, change / max(data.rms(fine), 1e-300))
        if worst > _COARSE:
            out.append(
                f"the data may be too coarse along {dim}: its derivatives change by "
                f"{worst:.0%} with the order of the difference; keep the equations' weight small."
            )
    return out
