"""Joint compression of arrays such that quantities derived from them keep their bounds.

Each variable is coded within a multiple of its a-priori bound (`split`), and violations of the
quantities' bounds are repaired (`repair`). The multiple with the fewest bytes is searched for.
Streams are decoded again and all quantities verified; if they cannot be repaired, the variables
are stored losslessly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import Logger
from typing import Any

import numpy as np

from scitoolkit.compression import dyadic
from scitoolkit.compression.arrays import as_numpy, split_mask
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import SAMPLED_POINTS, Options, middle_slices
from scitoolkit.compression.compress import (
    Missing,
    compress_within,
    missing_values_of,
    value_extent,
)
from scitoolkit.compression.container import pack, unpack
from scitoolkit.compression.decoding import decompress, error_bound_of
from scitoolkit.compression.mask import special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.patches import encode_patch, patched_points
from scitoolkit.compression.pointwise import exceeds
from scitoolkit.compression.quantities.check import Fields, Quantity, grid_of
from scitoolkit.compression.quantities.repair import Repairs, as_float, repair
from scitoolkit.compression.quantities.split import split_bounds
from scitoolkit.compression.quantities.text import QuantityText
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger

log: Logger = get_logger(__name__)
GROWTH, MAX_TRIALS, CHECKS = 1.5, 24, 4
QUANTITIES = "quantities"
"""Header entry of a variable that occurs in quantities: its name in them, and the texts, dims and
variables of the quantities."""


@dataclass(frozen=True)
class QuantityVariable:
    """Array that occurs in a quantity.

    Args:
        values: numpy array as given, possibly masked.
        missing: values that mark missing data.
        own: additional bound on the variable itself, if any.
        cap: `own` as an absolute bound (a fraction for pw_rel); infinite without one.
    """

    values: np.ndarray
    missing: MissingValues
    own: Bound | None
    cap: float

    @property
    def plain(self) -> np.ndarray:
        """The values in native byte order, without a mask."""
        plain = split_mask(self.values)[0]
        return plain.astype(plain.dtype.newbyteorder("="), copy=False)

    @property
    def special(self) -> np.ndarray | None:
        """True where values are missing or not finite; None if there are none."""
        plain, mask = split_mask(self.values)
        return special_values(plain, self.missing, mask) if plain.dtype.kind == "f" else None

    @property
    def relative(self) -> bool:
        """Whether the variable is coded with a pw_rel bound."""
        return self.own is not None and self.own.mode == "pw_rel"

    @property
    def lossy(self) -> bool:
        """Whether lossy coding is possible."""
        return self.values.dtype.kind == "f" and self.cap > 0

    def stream(self, bound: float, options: Options) -> bytes:
        """Return the stream of the values within a bound, before repairs."""
        asked = Bound("pw_rel" if self.relative else "abs", bound)
        return compress_within(self.values, asked, options, missing=self.missing)


@dataclass(frozen=True)
class QuantityProblem:
    """Variables, the bounded quantities derived from them, and the original values (float64)."""

    variables: Mapping[str, QuantityVariable]
    quantities: Sequence[Quantity]
    original: Fields


def compress_quantities(
    arrays: Mapping[str, Any],
    quantities: Iterable[str],
    *,
    bounds: Bound | Mapping[str, Bound | None] | None = None,
    options: Options | None = None,
    missing: Missing | Mapping[str, MissingValues] = None,
    dims: Sequence[str] | None = None,
    coordinates: Mapping[str, np.ndarray] | None = None,
) -> dict[str, bytes]:
    """Compress arrays such that quantities of the decoded arrays keep their bounds.

    Args:
        arrays: variable -> array; all of one shape, named as in the quantities.
        quantities: texts `EXPRESSION [@ REGION]: MODE=VALUE`, see `quantities.text`.
        bounds: additional bounds on the arrays: one for all, or variable -> bound (abs, rel or
            pw_rel).
        options: codec, enhancer, objective; the guarantee must be strict.
        missing: see `compress`; or variable -> `MissingValues`.
        dims: names of the dims; (..., t, z, y, x) by default.
        coordinates: dim -> positions, for derivatives; 0, 1, 2, ... by default.

    Returns:
        variable -> stream; each is decoded separately by `decompress`.

    Raises:
        ConfigError: an invalid text; arrays of different shape; a variable bounded only by means
            or in regions; a psnr bound or a relaxed guarantee.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> u, v = (rng.normal(size=(40, 40)).cumsum(0).astype("f4") for _ in "uv")
        >>> streams = compress_quantities({"u": u, "v": v}, ["sqrt(u^2 + v^2): abs=1e-2"])
        >>> decoded = {name: decompress(stream).astype("f8") for name, stream in streams.items()}
        >>> speed = np.hypot(u.astype("f8"), v)
        >>> bool(np.abs(np.hypot(decoded["u"], decoded["v"]) - speed).max() <= 1e-2)
        True
    """
    options = options or Options()
    texts = [QuantityText.read(text) for text in quantities]
    if not texts:
        raise ConfigError("no quantity given", fix="compress(array, ...) bounds a single array")
    if options.guarantee != "strict":
        raise ConfigError("quantities with a relaxed guarantee", allowed="strict")
    values = {name: as_numpy(array) for name, array in arrays.items()}
    variables = {
        name: _variable(
            name,
            values[name],
            _missing(name, arrays[name], missing),
            bounds.get(name) if isinstance(bounds, Mapping) else bounds,
        )
        for name in values
    }
    grid = grid_of({name: v.shape for name, v in values.items()}, dims, coordinates)
    original = {name: as_float(v.plain, v.special) for name, v in variables.items()}
    problem = QuantityProblem(
        variables, [Quantity(text, grid, original) for text in texts], original
    )
    _refuse_unbounded(problem)
    streams = _verified(problem, options)
    about = {"dims": list(grid.dims)}
    return {
        name: _described(
            stream, {"name": name, **about}, [q for q in problem.quantities if name in q.fields]
        )
        for name, stream in streams.items()
    }


def _missing(name: str, array: Any, stated: Missing | Mapping[str, MissingValues]) -> MissingValues:
    return missing_values_of(array, stated.get(name) if isinstance(stated, Mapping) else stated)


def _variable(
    name: str, values: np.ndarray, missing: MissingValues, own: Bound | None
) -> QuantityVariable:
    variable = QuantityVariable(values, missing, own, math.inf)
    if own is None or values.dtype.kind != "f":
        return variable
    if own.mode == "psnr":
        raise ConfigError(f"{name}: psnr with quantities", allowed="abs, rel, pw_rel, or none")
    cap = own.value
    special = variable.special
    if own.mode == "rel" and (special is None or not special.all()):
        cap = own.absolute(*value_extent(variable.plain, special, own, name))
    return replace(variable, cap=cap)


def _refuse_unbounded(problem: QuantityProblem) -> None:
    """Raise ConfigError for variables with points that no bound applies to."""
    covered = {name for q in problem.quantities if q.local for name in q.fields}
    for name, variable in problem.variables.items():
        if name not in covered and variable.own is None and variable.values.dtype.kind == "f":
            raise ConfigError(
                f"{name} is bounded only by means or in regions, or not at all",
                allowed="a bound for the variable, or a quantity without mean and region",
                fix=f"{name}: rel=1e-2",
            )


def _verified(problem: QuantityProblem, options: Options) -> dict[str, bytes]:
    """Return streams whose decoded values were verified, lossless ones if repairs fail."""
    a_priori = split_bounds(
        problem.quantities,
        problem.original,
        {n: np.abs(problem.original[n]) for n, v in problem.variables.items() if v.relative},
    )
    for name, variable in problem.variables.items():
        limit = math.inf if variable.relative else _extent(problem.original[name])
        # A bound above the extent gains nothing, as the field then is a constant.
        a_priori[name] = min(a_priori.get(name, math.inf), variable.cap, limit)
    factor = _best_factor(_sample(problem), a_priori, options)
    coded = _coded(problem, a_priori, factor, options)
    # `_holds` marks points that a reader decodes otherwise than the repairs assumed, which may
    # break a quantity again: hence several rounds.
    for _ in range(CHECKS):
        if not repair(problem.quantities, problem.original, coded.repairs):
            break
        streams = coded.streams()
        if _holds(problem, coded, streams):
            log.info("variables are coded within %g times the a-priori bounds", factor)
            return streams
    log.info("repairs do not keep the bounds of the quantities: variables are stored losslessly")
    return {n: v.stream(0.0, options) for n, v in problem.variables.items()}


def _extent(values: np.ndarray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if finite.size else 0.0


@dataclass(frozen=True)
class Coded:
    """Coded variables (streams in `bases`) and their repairs."""

    variables: Mapping[str, QuantityVariable]
    bases: Mapping[str, bytes]
    repairs: Mapping[str, Repairs]

    def streams(self) -> dict[str, bytes]:
        """Return the streams with repairs added."""
        return {
            n: _with_repairs(s, self.variables[n], self.repairs[n]) for n, s in self.bases.items()
        }


def _coded(
    problem: QuantityProblem,
    a_priori: Mapping[str, float],
    factor: float,
    options: Options,
) -> Coded:
    bases, repairs = {}, {}
    for name, variable in problem.variables.items():
        bound = min(factor * a_priori[name], variable.cap) if variable.lossy else 0.0
        bases[name] = variable.stream(bound, options)
        decoded = split_mask(np.asanyarray(decompress(bases[name])))[0]
        decoded = decoded.astype(decoded.dtype.newbyteorder("="), copy=False)
        # A step in log|x| differs from point to point, so pw_rel variables are only patched.
        # Whole steps of twice the bound bring any value to within the bound, and slightly shorter
        # ones do so in spite of rounding.
        step = 0.0 if variable.relative else 2 * a_priori[name] * (1 - 1e-9)
        step = step if np.finfo(np.float64).tiny < step < math.inf else 0.0
        repairs[name] = Repairs(variable.plain, decoded, step, variable.special)
    return Coded(problem.variables, bases, repairs)


def _best_factor(
    problem: QuantityProblem, a_priori: Mapping[str, float], options: Options
) -> float:
    """Return the multiple of the a-priori bounds that gives the fewest bytes with repairs."""
    if options.codec == "auto" and options.objective != "speed":
        options = Options(codec="interpolation", enhancer="none")
    widths = {
        n: v.cap if math.isfinite(v.cap) else _extent(problem.original[n])
        for n, v in problem.variables.items()
    }
    sizes: dict[float, int] = {}
    factor = 1.0
    for _ in range(MAX_TRIALS):
        coded = _coded(problem, a_priori, factor, options)
        touched = False
        if repair(problem.quantities, problem.original, coded.repairs):
            touched = any(r.exact.any() or r.units.any() for r in coded.repairs.values())
            sizes[factor] = sum(map(len, coded.streams().values()))
        since = list(sizes.values())
        best = since.index(min(since)) if since else 0
        widest = all(factor * a_priori[n] >= widths[n] for n in a_priori)
        # The size falls with the factor until repairs outweigh it: two sizes after the smallest one
        # end the search. Factors without a repair are far below the optimum, hence the longer step
        # below.
        if len(since) - best > 2 or widest:
            break
        factor *= GROWTH if touched else GROWTH**2
    return min(sizes, key=sizes.__getitem__) if sizes else 1.0


def _sample(problem: QuantityProblem) -> QuantityProblem:
    """Return the problem on a middle block of large variables, if all quantities are local."""
    shape = problem.quantities[0].grid.shape
    if math.prod(shape) <= 2 * SAMPLED_POINTS or not all(q.local for q in problem.quantities):
        return problem
    inner = middle_slices(shape)
    variables = {n: replace(v, values=v.values[inner]) for n, v in problem.variables.items()}
    original = {n: np.ascontiguousarray(v[inner]) for n, v in problem.original.items()}
    quantities = []
    for quantity in problem.quantities:
        grid, text = quantity.grid, quantity.text
        coordinates = {
            d: np.asarray(x)[inner[grid.dims.index(d)]] for d, x in grid.coordinates.items()
        }
        # The tolerance refers to the range in the whole arrays, which the block does not have.
        if text.mode == "rel":
            text = replace(text, mode="abs", value=float(quantity.tolerance))
        part = replace(grid, shape=next(iter(original.values())).shape, coordinates=coordinates)
        quantities.append(Quantity(text, part, original))
    return QuantityProblem(variables, quantities, original)


def _with_repairs(stream: bytes, variable: QuantityVariable, repairs: Repairs) -> bytes:
    """Return a stream with repairs added, and the variable's requested bound in the header."""
    header, views = unpack(stream)
    sections = {name: bytes(data) for name, data in views.items()}
    if variable.own is not None:
        # Decoders derive their step from the bound in the header: it is fixed before the requested
        # bound takes its place.
        if "range" in header:
            header["error_bound"] = error_bound_of(header)
        header["bound"] = {"mode": variable.own.mode, "value": variable.own.value}
    if repairs.units.any():
        sections["repairs"] = dyadic.encode_integers(repairs.units.reshape(repairs.native.shape))
        header["repair_step"] = float(repairs.step)
    if repairs.exact.any():
        stored = repairs.exact.copy()
        if "patch" in sections:
            stored[patched_points(sections["patch"], stored.size)] = True
        sections["patch"] = encode_patch(repairs.native, np.flatnonzero(stored))
    return pack(header, sections)


def _holds(problem: QuantityProblem, coded: Coded, streams: Mapping[str, bytes]) -> bool:
    """Verify the decoded streams; mark points that violate a variable's bound for exact storage."""
    good, decoded = True, {}
    for name, stream in streams.items():
        variable, repairs = problem.variables[name], coded.repairs[name]
        values = split_mask(np.asanyarray(decompress(stream)))[0]
        values = values.astype(values.dtype.newbyteorder("="), copy=False)
        decoded[name] = as_float(values, variable.special)
        away = _outside(variable, values)
        # Decoded values differ from those used for repairs where a valid range clips them.
        away |= ~((decoded[name] == repairs.current) | np.isnan(decoded[name])).reshape(-1)
        if away.any():
            good = False
            repairs.store(np.flatnonzero(away))
    return good and not any(q.broken(q.evaluate(decoded)).any() for q in problem.quantities)


def _outside(variable: QuantityVariable, values: np.ndarray) -> np.ndarray:
    """Return a flat mask of values that violate the variable's bound or became missing."""
    out = np.zeros(values.size, bool)
    if values.dtype.kind != "f":
        return out
    plain, special = variable.plain, variable.special
    not_special = np.ones(values.size, bool) if special is None else ~special.reshape(-1)
    if variable.own is not None:
        if variable.relative:
            out[exceeds(plain, values, variable.own.value)[0]] = True
        else:
            with np.errstate(invalid="ignore"):
                error = np.abs(plain.astype(np.float64) - values.astype(np.float64))
                out |= (error > variable.cap).reshape(-1)
    out |= variable.missing.where(values).reshape(-1)
    return out & not_special


def _described(stream: bytes, about: Mapping[str, Any], quantities: Sequence[Quantity]) -> bytes:
    """Return the stream with the quantities added to its header."""
    header, sections = unpack(stream)
    if quantities:
        header[QUANTITIES] = {
            **about,
            "texts": [q.text.text for q in quantities],
            "variables": sorted({name for q in quantities for name in q.fields}),
        }
    return pack(header, {name: bytes(data) for name, data in sections.items()})
