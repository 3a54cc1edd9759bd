"""Spec of a tensor product: irreps, paths, weights and constants, independent of the backend.

Layouts: in `mul_ir`, that of e3nn, the components of a channel are contiguous. In `ir_mul` the
channels of a component are contiguous, which suits SIMD. Use `ir_mul` throughout a model.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.irreps import Irreps
from scitoolkit.ops.wigner import wigner_3j

MODES = ("uvu", "uvw", "uuu")
MAX_DEGREE = 7
CG_ZERO = 1e-9  # below this a Clebsch-Gordan coefficient is rounding noise of an exact zero


@dataclass(frozen=True)
class IrrepSlice:
    """`mul` channels of an irrep of degree `degree`, stored from column `offset` of a row."""

    mul: int
    degree: int
    parity: int
    offset: int

    def __str__(self) -> str:
        """Return the irrep block in e3nn's notation."""
        return f"{self.mul}x{self.degree}{'e' if self.parity == 1 else 'o'}"

    @property
    def components(self) -> int:
        """The 2 l + 1 components of the irrep."""
        return 2 * self.degree + 1


@dataclass(frozen=True)
class Path:
    """One instruction: segments in1 x in2 -> out with mode, weights and scale."""

    in1: int
    in2: int
    out: int
    mode: str
    has_weight: bool
    weight_offset: int
    scale: float


@dataclass(frozen=True)
class TensorProductSpec:
    """A tensor product of features (in1) with edge attributes (in2).

    Create one with `TensorProductSpec.build` (arguments of e3nn), `TensorProductSpec.channelwise`
    (all uvu paths into given irreps) or `TensorProductSpec.from_e3nn`.

    Attributes:
        dim_in1, dim_in2, dim_out: length of a row of features, edge attributes, output.
        weight_numel: number of weights of one row, in e3nn's order.
        text: the spec as JSON, read by `from_json`.

    Example:
        >>> spec = TensorProductSpec.channelwise("32x0e + 32x1o", "0e + 1o", "0e + 1o")
        >>> spec.dim_in1, spec.dim_in2, spec.dim_out, spec.weight_numel
        (128, 4, 256, 128)
    """

    in1: tuple[IrrepSlice, ...]
    in2: tuple[IrrepSlice, ...]
    out: tuple[IrrepSlice, ...]
    paths: tuple[Path, ...]
    shared_weights: bool

    if TYPE_CHECKING:  # set by __post_init__; not fields, because they are derived

        @property
        def text(self) -> str:
            """The spec as JSON."""

        @property
        def dim_in1(self) -> int:
            """Length of a row of features."""

        @property
        def dim_in2(self) -> int:
            """Length of a row of edge attributes."""

        @property
        def dim_out(self) -> int:
            """Length of a row of output."""

        @property
        def weight_numel(self) -> int:
            """Number of weights of one row."""

    def __post_init__(self) -> None:
        # Attributes read in every call, which are constants for torch.compile. The text, an
        # argument of the operators, is interned: caches then compare equal specs by identity.
        for name, value in (
            ("text", sys.intern(json.dumps(asdict(self)))),
            ("dim_in1", _dim(self.in1)),
            ("dim_in2", _dim(self.in2)),
            ("dim_out", _dim(self.out)),
            ("weight_numel", sum(self.num_weights(path) for path in self.paths)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def build(
        cls,
        irreps_in1: Any,
        irreps_in2: Any,
        irreps_out: Any,
        instructions: Sequence[tuple[Any, ...]],
        *,
        shared_weights: bool = False,
        irrep_normalization: str = "component",
        path_normalization: str = "element",
    ) -> TensorProductSpec:
        """Return the spec of `e3nn.o3.TensorProduct` with the same arguments.

        Args:
            irreps_in1: irreps of the first factor in any order, see `Irreps`.
            irreps_in2: irreps of the second factor.
            irreps_out: irreps of the product.
            instructions: (i_in1, i_in2, i_out, mode, has_weight[, path_weight]).
            shared_weights: one weight vector for all rows instead of one per row.
            irrep_normalization: component, norm or none.
            path_normalization: element, path or none.

        Raises:
            ConfigError: an invalid instruction, mode or normalisation.

        Example:
            >>> TensorProductSpec.build("8x1o", "1x1o", "8x0e", [(0, 0, 0, "uvu", True)]).dim_out
            8
        """
        in1, in2, out = (_segments(irreps) for irreps in (irreps_in1, irreps_in2, irreps_out))
        listed = [tuple(row) + (1.0,) * (6 - len(row)) for row in instructions]
        for position, instruction in enumerate(listed):
            _check_instruction(position, instruction, in1, in2, out)
        paths, offset = [], 0
        for i, j, k, mode, has_weight, path_weight in listed:
            shared = [
                _fan_in(other[3], in1[other[0]].mul, in2[other[1]].mul)
                for other in listed
                if other[2] == k
            ]
            own = _fan_in(mode, in1[i].mul, in2[j].mul)
            scale = math.sqrt(
                path_weight
                * _irrep_factor(irrep_normalization, in1[i], in2[j], out[k])
                / _path_factor(path_normalization, own, shared)
            )
            paths.append(Path(i, j, k, mode, bool(has_weight), offset, scale))
            offset += _num_weights(mode, in1[i].mul, in2[j].mul, out[k].mul) if has_weight else 0
        return cls(in1, in2, out, tuple(paths), shared_weights)

    @classmethod
    def channelwise(
        cls, irreps_in1: Any, irreps_in2: Any, irreps_wanted: Any, **options: Any
    ) -> TensorProductSpec:
        """Return the spec of all uvu paths into the irreps in `irreps_wanted`, sorted by irrep.

        This is the convolution of NequIP and MACE. Each path has a separate output segment.

        Args:
            irreps_in1: irreps of the features.
            irreps_in2: irreps of the edge attributes.
            irreps_wanted: irreps of the output; multiplicities are ignored.
            options: keyword arguments of `build`.
        """
        irreps, instructions = channelwise_instructions(irreps_in1, irreps_in2, irreps_wanted)
        return cls.build(irreps_in1, irreps_in2, irreps, instructions, **options)

    @classmethod
    def from_e3nn(cls, module: Any) -> TensorProductSpec:
        """Return the spec of an `e3nn.o3.TensorProduct` with its path weights.

        The signs of e3nn's constants are preserved: in e3nn before 0.5, which mace-torch requires,
        some differ from those of `wigner_3j`.
        """
        in1, in2, out = (
            _segments(irreps)
            for irreps in (module.irreps_in1, module.irreps_in2, module.irreps_out)
        )
        paths, offset = [], 0
        for position, path in enumerate(module.instructions):
            mode = path.connection_mode
            bare = (path.i_in1, path.i_in2, path.i_out, mode, path.has_weight, 1.0)
            _check_instruction(position, bare, in1, in2, out)
            degrees = (in1[path.i_in1].degree, in2[path.i_in2].degree, out[path.i_out].degree)
            scale = float(path.path_weight) * _sign_in_e3nn(*degrees)
            paths.append(Path(*bare[:3], mode, path.has_weight, offset, scale))
            muls = (in1[path.i_in1].mul, in2[path.i_in2].mul, out[path.i_out].mul)
            offset += _num_weights(mode, *muls) if path.has_weight else 0
        return cls(in1, in2, out, tuple(paths), module.shared_weights)

    def num_weights(self, path: Path) -> int:
        """Return the number of weights of one path."""
        muls = (self.in1[path.in1].mul, self.in2[path.in2].mul, self.out[path.out].mul)
        return _num_weights(path.mode, *muls) if path.has_weight else 0

    def coefficients(self, path: Path) -> np.ndarray:
        """Return the scaled constants C[i, j, k] of a path.

        Returns:
            Shape (2 l1 + 1, 2 l2 + 1, 2 l3 + 1), float64.
        """
        degrees = (self.in1[path.in1].degree, self.in2[path.in2].degree, self.out[path.out].degree)
        return wigner_3j(*degrees) * path.scale

    def describe(self, number: int | None = None) -> str:
        """Return a description of the spec or of one path, for comments in generated code.

        Example:
            >>> TensorProductSpec.channelwise("4x0e + 4x1o", "0e + 1o", "0e").describe(1)
            'path 1: 4x1o x 1x1o -> 4x0e, uvu, weights 4..7'
        """
        if number is None:
            sides = [" + ".join(map(str, side)) for side in (self.in1, self.in2, self.out)]
            return f"({sides[0]}) x ({sides[1]}) -> ({sides[2]})"
        path = self.paths[number]
        first, last = path.weight_offset, path.weight_offset + self.num_weights(path) - 1
        weights = f"weights {first}..{last}" if path.has_weight else "no weights"
        a, b, c = self.in1[path.in1], self.in2[path.in2], self.out[path.out]
        return f"path {number}: {a} x {b} -> {c}, {path.mode}, {weights}"

    def to_json(self) -> str:
        """Return the spec as text, an argument of operators that torch.compile can trace."""
        return self.text

    @staticmethod
    @functools.lru_cache(maxsize=256)
    def from_json(text: str) -> TensorProductSpec:
        """Return the spec of a text from `to_json`."""
        raw = json.loads(text)
        sides = [tuple(IrrepSlice(**entry) for entry in raw[key]) for key in ("in1", "in2", "out")]
        return TensorProductSpec(  # type: ignore[call-arg]
            *sides,  # type: ignore[arg-type]
            tuple(Path(**entry) for entry in raw["paths"]),
            raw["shared_weights"],
        )


def channelwise_instructions(
    irreps_in1: object, irreps_in2: object, irreps_wanted: object
) -> tuple[Irreps, list[tuple]]:
    """Return the output irreps and instructions of all uvu paths into `irreps_wanted`, sorted.

    Example:
        >>> irreps, instructions = channelwise_instructions("4x0e + 4x1o", "0e + 1o", "0e")
        >>> str(irreps), instructions
        ('4x0e+4x0e', [(0, 0, 0, 'uvu', True), (1, 1, 1, 'uvu', True)])
    """
    first, second = Irreps(irreps_in1), Irreps(irreps_in2)
    wanted = {irrep for _, irrep in Irreps(irreps_wanted)}
    products = [
        (mul, irrep, i, j)
        for i, (mul, left) in enumerate(first)
        for j, (_, right) in enumerate(second)
        for irrep in left.product(right)
        if irrep in wanted
    ]
    order = Irreps([(mul, irrep) for mul, irrep, _, _ in products]).sort()
    numbered = [(i, j, order.p[k], "uvu", True) for k, (_, _, i, j) in enumerate(products)]
    return order.irreps, sorted(numbered, key=lambda instruction: instruction[2])


def _sign_in_e3nn(l1: int, l2: int, l3: int) -> float:
    """Return the sign of the imported e3nn's constants relative to those of `wigner_3j`."""
    theirs = sys.modules["e3nn.o3"].wigner_3j(l1, l2, l3).numpy()
    return math.copysign(1.0, float((theirs * wigner_3j(l1, l2, l3)).sum()))


def _segments(irreps: object) -> tuple[IrrepSlice, ...]:
    segments, offset = [], 0
    for mul, irrep in Irreps(irreps):
        if irrep.degree > MAX_DEGREE:
            raise ConfigError(
                f"the degree of irrep {irrep} is too high",
                where=f"irreps {str(irreps)!r}",
                allowed=f"l <= {MAX_DEGREE}",
            )
        segments.append(IrrepSlice(mul, irrep.degree, irrep.parity, offset))
        offset += mul * irrep.dim
    return tuple(segments)


def _dim(segments: tuple[IrrepSlice, ...]) -> int:
    return sum(segment.mul * segment.components for segment in segments)


def _check_instruction(position: int, instruction: tuple, in1, in2, out) -> None:
    i, j, k, mode = instruction[:4]
    where = f"instructions[{position}]"
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r}", where=where, allowed=", ".join(MODES))
    for index, side in ((i, in1), (j, in2), (k, out)):
        if not 0 <= index < len(side):
            raise ConfigError(f"segment {index}", where=where, allowed=f"0 to {len(side) - 1}")
    a, b, c = in1[i], in2[j], out[k]
    degrees = (a.degree, b.degree, c.degree)
    if not abs(a.degree - b.degree) <= c.degree <= a.degree + b.degree:
        raise ConfigError(
            f"degrees {degrees} do not couple", where=where, allowed="|l1-l2| <= l3 <= l1+l2"
        )
    if a.parity * b.parity != c.parity:
        raise ConfigError(f"parity of {degrees} differs", where=where, allowed="p1 * p2 == p3")
    same = {"uvu": a.mul == c.mul, "uuu": a.mul == b.mul == c.mul, "uvw": True}[mode]
    if not same:
        raise ConfigError(
            f"multiplicities {a.mul}, {b.mul}, {c.mul} do not fit mode {mode}",
            where=where,
            allowed="uvu: mul1 == mul3; uuu: all equal",
        )
    if mode == "uvw" and not instruction[4]:
        raise ConfigError("mode uvw without weights", where=where, allowed="has_weight=True")


def _num_weights(mode: str, mul1: int, mul2: int, mul3: int) -> int:
    return {"uvu": mul1 * mul2, "uvw": mul1 * mul2 * mul3, "uuu": mul1}[mode]


def _fan_in(mode: str, mul1: int, mul2: int) -> int:
    return {"uvu": mul2, "uvw": mul1 * mul2, "uuu": 1}[mode]


def _irrep_factor(normalization: str, a: IrrepSlice, b: IrrepSlice, c: IrrepSlice) -> int:
    factors = {"component": c.components, "norm": a.components * b.components, "none": 1}
    if normalization not in factors:
        raise ConfigError(f"irrep_normalization={normalization!r}", allowed=", ".join(factors))
    return factors[normalization]


def _path_factor(normalization: str, own: int, shared: list[int]) -> int:
    factors = {"element": sum(shared), "path": own * len(shared), "none": 1}
    if normalization not in factors:
        raise ConfigError(f"path_normalization={normalization!r}", allowed=", ".join(factors))
    return factors[normalization]
