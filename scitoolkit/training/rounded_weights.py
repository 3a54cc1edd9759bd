"""Weights of a trained model in fewer bits on disk: float16, or int8 with a step for each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_STEP, _LARGE, _ROW = ".step", 10_000, 64


def rounded(state: Mapping[str, Tensor], names: Iterable[str], dtype: str) -> dict[str, Tensor]:
    """Return a state in which the named float32 tensors are kept in `dtype`.

    Args:
        state: of a model, on the CPU.
        names: of the tensors that may be rounded; the others stay as they are.
        dtype: float32, float16, or int8, by which tensors of 10,000 numbers and more are rounded
            to 1/254 of the range of each of their rows and the rest to float16.

    Returns:
        the state; a tensor in int8 has the steps of its rows, float32, beside it.

    Example:
        >>> state = {"weight": torch.randn(100, 100)}
        >>> small = rounded(state, ["weight"], "int8")
        >>> small["weight"].dtype, small["weight.step"].shape
        (torch.int8, torch.Size([100, 1]))
        >>> error = (restored(small)["weight"] - state["weight"]).abs()
        >>> bool((error <= small["weight.step"] * 0.51).all())
        True
    """
    out = dict(state)
    for name in names:
        if state[name].dtype == torch.float32:
            out |= _rounded(name, state[name], dtype)
    return out


def restored(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the state without steps: what is int8 is multiplied with those of its rows."""
    out = {}
    for name, tensor in state.items():
        step = state.get(name + _STEP)
        if tensor.dtype == torch.int8 and step is not None:
            out[name] = (_rows(tensor) * step).view(tensor.shape)
        elif state.get(name.removesuffix(_STEP), tensor).dtype != torch.int8:
            out[name] = tensor
    return out


def _rounded(name: str, weight: Tensor, dtype: str) -> dict[str, Tensor]:
    if dtype != "int8" or weight.numel() < _LARGE or (weight.ndim < 2 and len(weight) % _ROW):
        return {name: weight.to(torch.float32 if dtype == "float32" else torch.float16)}
    rows = _rows(weight)
    step = (rows.abs().amax(1, keepdim=True) / 127).clamp_min(1e-30)
    return {name: (rows / step).round().to(torch.int8).view_as(weight), name + _STEP: step}


def _rows(weight: Tensor) -> Tensor:
    """Return the rows that have a step of their own: of a matrix, or stretches of a vector."""
    return weight.flatten(1) if weight.ndim > 1 else weight.view(-1, _ROW)
