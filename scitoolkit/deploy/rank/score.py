"""Change of the outputs of a surrogate when layers are replaced."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.agreement import in_order
from scitoolkit.deploy.rank.joined import samples_of

SCORED = 3
"""Number of samples for the changes by single layers."""


class Score:
    """The change of a surrogate's outputs on some samples.

    Args:
        root: its joined modules; changes are relative to their outputs at construction.
        functions: of the surrogate.
        given: typical inputs of each function.
        most: largest number of samples of each function.
    """

    def __init__(
        self,
        root: nn.Module,
        functions: Sequence[TracedFunction],
        typical: Sequence[Sequence[np.ndarray]],
        most: int,
    ) -> None:
        self._root, self._functions = root, functions
        self._calls = [
            (f"f{k}", sample)
            for k, (f, a) in enumerate(zip(functions, typical, strict=True))
            for sample in samples_of(f, a, most)
        ]
        self._dense = self._outputs()
        if not all(tensor.isfinite().all() for own in self._dense for tensor in own):
            raise ConfigError(
                "outputs on typical inputs are NaN or infinite: their changes have no size",
                where="export in low rank",
                fix="typical inputs inside the range of the model, or bits instead of low rank",
            )
        self._scales = self._sizes(functions)

    def with_layer(self, name: str, layer: nn.Module) -> float:
        """Return the mean squared relative change of all outputs with one layer replaced."""
        before = self._root.get_submodule(name)
        places = [n for n, m in self._root.named_modules(remove_duplicate=False) if m is before]
        for place in places:
            self._root.set_submodule(place, layer)
        try:
            changed = self._outputs()
        finally:
            for place in places:
                self._root.set_submodule(place, before)
        return float(np.mean([float(self._change(k, own)) for k, own in enumerate(changed)]))

    def _change(self, number: int, outputs: Sequence[Tensor]) -> Tensor:
        scales = self._scales[self._calls[number][0]]
        return torch.stack(
            [
                (a - b).square().mean() / scale
                for a, b, scale in zip(outputs, self._dense[number], scales, strict=True)
            ]
        ).mean()

    def _call(self, number: int) -> tuple[Tensor, ...]:
        name, sample = self._calls[number]
        function = self._functions[int(name[1:])]
        result = self._root.get_submodule(name)(*sample)
        return tuple(in_order(result, function.outputs, function.name))

    def _outputs(self) -> list[tuple[Tensor, ...]]:
        with torch.no_grad():
            return [self._call(k) for k in range(len(self._calls))]

    def _sizes(self, functions: Sequence[TracedFunction]) -> dict[str, list[float]]:
        """Return the mean square that changes of each output are relative to.

        For an output that is also an input it is that of its change, which may be much smaller.
        """
        sums: dict[str, list[list[float]]] = {}
        for (place, sample), outputs in zip(self._calls, self._dense, strict=True):
            function = functions[int(place[1:])]
            by_name = {s.name: x for s, x in zip(function.inputs, sample, strict=True)}
            own = []
            for spec, value in zip(function.outputs, outputs, strict=True):
                before = by_name.get(spec.name)
                if before is None or before.shape != value.shape:
                    before = value.mean()
                own.append(float((value - before).square().mean()))
            sums.setdefault(place, []).append(own)
        return {k: [max(s, 1e-30) for s in np.mean(v, axis=0).tolist()] for k, v in sums.items()}
