"""Quantisation of the linear and recurrent layers of a surrogate.

The returned modules have dequantised weights, so that they are the reference of the C code; the
codes are found by these weights in the traced model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.agreement import copies
from scitoolkit.deploy.bits.codes import Uniform, matrix_key, rounded
from scitoolkit.deploy.bits.rounding import best_rounding
from scitoolkit.deploy.config import ExportConfig

SMALLEST = 16
"""Least number of inputs and outputs of a matrix to be quantised."""
ROWS = 4096
"""Inputs of a layer for fitting its rounding, and as many for choosing between roundings."""


@dataclass(frozen=True)
class Compressed:
    """Quantised surrogate.

    Attributes:
        functions: with dequantised weights.
        coded: {`matrix_key`: codes}.
        names: {key: name of the layer}.
        dense: names of layers whose weights stay in float32.
    """

    functions: Sequence[TracedFunction]
    coded: dict[bytes, Uniform]
    names: dict[bytes, str]
    dense: list[str]


def compress(
    functions: Sequence[TracedFunction],
    typical: Sequence[Sequence[np.ndarray]],
    config: ExportConfig,
) -> Compressed:
    """Quantise linear and recurrent weights to `config.bits` bits.

    Args:
        functions: float32 functions; not modified.
        typical: inputs of each function for fitting the rounding.
        config: bits, group, rounding, keep.

    Raises:
        ConfigError: no layer to quantise, or an unknown layer in `keep`.
    """
    assert config.bits is not None
    changed = copies([f.module for f in functions])
    chosen, dense = _layers(changed, config.keep)
    compensate = (
        config.rounding or ("nearest" if config.bits == 8 else "compensated")
    ) != "nearest"
    seen = _inputs(changed, functions, typical, [m for m, *_ in chosen]) if compensate else {}
    coded: dict[bytes, Uniform] = {}
    names: dict[bytes, str] = {}
    for module, name, parameter in chosen:
        weight = getattr(module, parameter)
        matrix = weight.detach().numpy()
        rows = seen.get(id(module)) if parameter == "weight" else None
        if rows is None or len(rows) < 2:
            code = rounded(matrix, config.bits, config.group or 0)
        else:
            code = best_rounding(
                matrix, rows[::2][:ROWS], rows[1::2][:ROWS], config.bits, config.group or 0
            )
        code = replace(code, input_bits=config.input_bits)
        with torch.no_grad():
            weight.copy_(torch.from_numpy(code.matrix()))
        key = matrix_key(weight)
        coded[key] = code
        names[key] = name if parameter == "weight" else f"{name}.{parameter}"
    made = [replace(f, module=m) for f, m in zip(functions, changed, strict=True)]
    return Compressed(made, coded, names, dense)


def _layers(
    modules: Sequence[nn.Module], keep: Sequence[str]
) -> tuple[list[tuple[nn.Module, str, str]], list[str]]:
    """Return (module, name, parameter) of each matrix to compress, and the layers left dense."""
    chosen, dense, names, seen = [], [], set(), set()
    for root in modules:
        for name, module in root.named_modules():
            names.add(name)
            if id(module) in seen or not any(True for _ in module.parameters(recurse=False)):
                continue
            seen.add(id(module))
            remains = any(name == k or name.startswith(f"{k}.") for k in keep)
            parameters = [] if remains else list(_matrices(module))
            chosen += [(module, name, parameter) for parameter in parameters]
            if not parameters and isinstance(getattr(module, "weight", None), Tensor):
                dense.append(f"{name} ({type(module).__name__})")
    for name in keep:
        if name not in names:
            raise ConfigError(
                f"no layer {name!r}",
                where="keep",
                allowed=", ".join(sorted(names - {""})),
                fix=nearest_name(name, sorted(names)) or "a name of a layer",
            )
    if not chosen:
        raise ConfigError(
            "bits apply to linear and recurrent layers, but this surrogate has none of at least "
            f"{SMALLEST} inputs and outputs",
            where="bits",
            allowed="float32 for " + (", ".join(dense) or "all of it"),
            fix="leave bits out",
        )
    return chosen, dense


def _matrices(module: nn.Module) -> Iterator[str]:
    if isinstance(module, nn.Linear):
        names = ["weight"]
    elif isinstance(module, nn.RNNBase):
        names = [n for n, _ in module.named_parameters(recurse=False) if n.startswith("weight")]
    else:
        names = []
    for name in names:
        if min(getattr(module, name).shape) >= SMALLEST:
            yield name


def _inputs(
    modules: Sequence[nn.Module],
    functions: Sequence[TracedFunction],
    typical: Sequence[Sequence[np.ndarray]],
    layers: Sequence[nn.Module],
) -> dict[int, np.ndarray]:
    """Return {id of a linear layer: evenly chosen inputs (rows, inputs)}."""
    rows_of: dict[int, list[np.ndarray]] = {}

    def note(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        rows = args[0].detach().reshape(-1, args[0].shape[-1]).numpy()
        rows = rows[np.isfinite(rows).all(1)]
        if not len(rows):
            return
        rows_of.setdefault(id(module), []).append(rows[:: -(-len(rows) // ROWS)].copy())

    hooks = [m.register_forward_pre_hook(note) for m in layers if isinstance(m, nn.Linear)]
    try:
        with torch.no_grad():
            for module, function, arrays in zip(modules, functions, typical, strict=True):
                own = [a for a, s in zip(arrays, function.inputs, strict=True) if not s.shared]
                for k in range(len(own[0])):
                    module.eval()(
                        *(
                            torch.from_numpy(a if s.shared else a[k : k + 1])
                            for a, s in zip(arrays, function.inputs, strict=True)
                        )
                    )
    finally:
        for hook in hooks:
            hook.remove()
    return {k: _even(np.concatenate(v), 2 * ROWS) for k, v in rows_of.items()}


def _even(rows: np.ndarray, most: int) -> np.ndarray:
    return rows[:: -(-len(rows) // most)]
