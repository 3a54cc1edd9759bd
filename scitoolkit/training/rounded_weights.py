"""Reduced-precision weights for storage: float16, or int8 with one scale per row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_STEP, _LARGE, _ROW = ".step", 10_000, 64
_MOST = torch.finfo(torch.float16).max


def rounded(state: Mapping[str, Tensor], names: Iterable[str], dtype: str) -> dict[str, Tensor]:
    """Return a state dict with the named float32 tensors rounded to `dtype`.

    Args:
        state: state dict of a model, on the CPU.
        names: tensors to round; the others are unchanged.
        dtype: float32, float16 or int8. With int8, tensors of at least 10,000 numbers get 255
            levels per row and smaller ones are rounded to float16. Tensors whose values exceed
            the range of float16 stay float32.

    Returns:
        The state dict; an int8 tensor NAME is accompanied by its row scales `NAME.step`, float32.

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
    """Return the state dict with int8 tensors multiplied by their row scales, which are removed."""
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
        fits = dtype != "float32" and not bool((weight.abs() > _MOST).any())
        return {name: weight.to(torch.float16 if fits else torch.float32)}
    rows = _rows(weight)
    step = (rows.abs().amax(1, keepdim=True) / 127).clamp_min(1e-30)
    return {name: (rows / step).round().to(torch.int8).view_as(weight), name + _STEP: step}


def _rows(weight: Tensor) -> Tensor:
    """Return the groups that share a scale: rows of a matrix, or 64 entries of a vector."""
    return weight.flatten(1) if weight.ndim > 1 else weight.view(-1, _ROW)
