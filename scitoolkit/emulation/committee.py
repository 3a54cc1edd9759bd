"""Active learning: simulates the parameters at which the members of an ensemble disagree most.

The disagreement at a parameter set is measured on the states of the simulation in the reservoir
with the nearest parameters: the spread of the members' next states with the parameters replaced. It
needs no simulation. Query by committee: Seung, Opper and Sompolinsky 1992.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.devices import device_of, to_host
from scitoolkit.core.draw import DrawConfig
from scitoolkit.emulation.ensemble import Ensemble, members_of
from scitoolkit.io.loader.reservoir import SimulationReservoir

_KEY = 0xC0
STATES = 4


class Committee:
    """Chooses the parameters of the next simulation from random candidates.

    Args:
        model: the committee, at its present state of training.
        reservoir: the states.
        draw: distribution of the candidates.
        scales: {parameter: `linear` or `log`} of the network's inputs.
        seed: of the candidates.
        candidates: number of parameter sets compared for each simulation.
    """

    def __init__(
        self,
        model: Ensemble,
        reservoir: SimulationReservoir,
        draw: DrawConfig,
        scales: Mapping[str, str],
        seed: int,
        *,
        candidates: int,
    ) -> None:
        self._model, self._reservoir, self._draw = model, reservoir, draw
        self._scales, self._seed, self._count = scales, seed, candidates

    def choose(self, number: int) -> dict[str, float]:
        """Return the parameters of a simulation: the candidate with the largest disagreement."""
        rng = np.random.default_rng([self._seed, _KEY, number])
        points = rng.random((self._count, len(self._draw.parameters)))
        sets = [self._draw.values(point.tolist()) for point in points]
        return sets[int(np.argmax(self.disagreement(sets)))]

    def disagreement(self, sets: list[dict[str, float]]) -> np.ndarray:
        """Return the spread of the members at each parameter set, in units of typical changes."""
        names = list(sets[0])
        asked = np.array([[self._given(n, s[n]) for n in names] for s in sets], np.float32)
        held = np.stack(
            [
                [float(self._reservoir.slot(slot)[n].flat[0]) for n in names]
                for slot in range(self._reservoir.capacity)
            ]
        )
        width = np.maximum(np.ptp(np.concatenate([held, asked]), axis=0), 1e-30)
        apart = np.linalg.norm((asked[:, None] - held[None]) / width, axis=2)
        windows = self._reservoir.windows
        starts = np.unique(np.linspace(0, windows - 1, STATES).astype(int))
        indices = (apart.argmin(1)[:, None] * windows + starts).ravel()
        batch = {k: torch.from_numpy(v[:, 0]) for k, v in self._reservoir.read(indices).items()}
        for column, name in enumerate(names):
            values = torch.from_numpy(np.repeat(asked[:, column], len(starts)))
            batch[name] = values.reshape(-1, *[1] * (batch[name].ndim - 1)).expand_as(batch[name])
        return self._spread(batch).reshape(len(sets), -1).mean(1)

    def _spread(self, batch: Mapping[str, Tensor]) -> np.ndarray:
        """Return the variance over the members for each sample, (samples,)."""
        members, was_training = members_of(self._model), self._model.training
        device = device_of(self._model)
        inputs = [batch[v.name].to(device) for v in self._model.layout.inputs]
        self._model.eval()
        with torch.no_grad():
            answers = [member(*inputs) for member in members]
        self._model.train(was_training)
        scales = {
            v.name: s for v, s in zip(members[0].learned, members[0].output_scales(), strict=True)
        }
        spread = torch.zeros(len(inputs[0]), device=device)
        for position, variable in enumerate(self._model.layout.outputs):
            if variable.name in scales and scales[variable.name].any():
                values = torch.stack([answer[position].flatten(1) for answer in answers])
                size = scales[variable.name].mean().clamp_min(1e-30)
                spread += (values / size).var(0).mean(1)
        return to_host(spread)

    def _given(self, name: str, value: float) -> float:
        return float(np.log10(value)) if self._scales[name] == "log" else value
