"""ONNX files of modules of plain arrays."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import missing_extra


def write_onnx(
    model: nn.Module,
    example: Sequence[Tensor],
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    about: Mapping[str, Any],
    free: Any = None,
) -> Callable[[Sequence[Tensor]], Sequence[np.ndarray]]:
    """Write a module as ONNX and return a call of the file by onnxruntime.

    Args:
        model: takes one tensor per input and returns one per output.
        example: tensors of the shapes of a call.
        path: the file, overwritten also where the module cannot be written.
        inputs, outputs: names of the arrays; an output of an input's name ends in `_next`.
        about: metadata, written as JSON.
        free: `dynamic_shapes` of `torch.onnx.export`: sizes that a call may choose.

    Raises:
        BackendError: onnx, onnxscript or onnxruntime is not installed.
    """
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise missing_extra("onnx, onnxscript, onnxruntime", "emulation", "ONNX") from None
    with _quiet("torch.onnx"):
        torch.onnx.export(
            model,
            tuple(example),
            str(path),
            dynamo=True,
            verbose=False,
            external_data=False,
            input_names=list(inputs),
            output_names=[f"{name}_next" if name in inputs else name for name in outputs],
            dynamic_shapes=free,
        )
    stored = onnx.load(str(path))
    props = {key: json.dumps(value, default=np.generic.item) for key, value in about.items()}
    onnx.helper.set_model_props(stored, props)
    onnx.save(stored, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def call(arrays: Sequence[Tensor]) -> Sequence[np.ndarray]:
        pairs = zip((entry.name for entry in session.get_inputs()), arrays, strict=True)
        results: Sequence[np.ndarray] = session.run(None, {n: a.numpy() for n, a in pairs})
        return results

    return call


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Suppress the warnings of a logger; its level is restored."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
