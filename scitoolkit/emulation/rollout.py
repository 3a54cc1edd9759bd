"""Rollouts of emulators, and the baselines persistence and linear extrapolation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.devices import device_of, to_host
from scitoolkit.core.errors import NumericalError
from scitoolkit.emulation.config import EmulationConfig, SymmetryConfig
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.emulation.ensemble import AnyEmulator, NoiseEnsemble, members_of
from scitoolkit.emulation.noise import ROLLOUT, noise_of
from scitoolkit.emulation.symmetries import Symmetries
from scitoolkit.emulation.variables import NOISE, Layout

Frames = Mapping[str, np.ndarray]
"""One sample: variable -> (*dims)."""


def step_once(emulator: AnyEmulator, inputs: Frames) -> dict[str, np.ndarray]:
    """Return the outputs of one sample, (*dims) float32 each, in physical units.

    For a probabilistic emulator without noise among the inputs, the mean of its members' outputs.
    """
    if emulator.layout.noise and NOISE not in inputs:
        return mean_of(emulator, Rollout(emulator, inputs).advance())
    device = device_of(emulator)
    tensors = [_batch(inputs[v.name]).to(device) for v in emulator.layout.inputs]
    with torch.no_grad():
        outputs = emulator.eval()(*tensors)
    names = [v.name for v in emulator.layout.outputs]
    return {n: to_host(t[0]) for n, t in zip(names, outputs, strict=True)}


class Rollout:
    """Rollout of an emulator, or of every member of an ensemble, that can be resumed.

    The noise of a probabilistic emulator depends on seed, first inputs, member and step.

    Args:
        emulator: an emulator, which counts as one member, or an ensemble; called with one
            sample at a time, so that memory does not grow with the length.
        first: the inputs at step 0.
        forcing: returns the inputs of step k that are not outputs; without it those of step 0 stay.
        jitters: one per member, which draws a symmetry for each step.
    """

    def __init__(
        self,
        emulator: AnyEmulator,
        first: Frames,
        forcing: Callable[[int], Frames] | None = None,
        jitters: Sequence[Jitter] | None = None,
    ) -> None:
        self._members = members_of(emulator)
        self._forcing, self._jitters = forcing, jitters
        self._given: list[dict[str, np.ndarray]] = [dict(first) for _ in self._members]
        self._step = 0
        self._noise, self._first = emulator.layout.noise, first
        self._seed = emulator.seed if isinstance(emulator, NoiseEnsemble) else 0

    def advance(self) -> list[dict[str, np.ndarray]]:
        """Return the outputs of every member after one more step.

        Raises:
            NumericalError: a state is no longer finite.
        """
        outputs = [self._advanced(k) for k in range(len(self._members))]
        self._step += 1
        return outputs

    def _advanced(self, number: int) -> dict[str, np.ndarray]:
        member, inputs = self._members[number], self._given[number]
        if self._forcing is not None and self._step:
            state = set(member.layout.recurrent)
            inputs |= {n: v for n, v in self._forcing(self._step).items() if n not in state}
        if self._noise:
            begin = self._first[member.layout.state[0]]
            seeds = (self._seed, ROLLOUT, number, self._step)
            inputs[NOISE] = noise_of(begin, [self._noise], *seeds)
        if self._jitters is None:
            outputs = step_once(member, inputs)
        else:
            outputs = self._jitters[number].step(member, inputs)
        for name, values in outputs.items():
            if not np.isfinite(values).all():
                raise NumericalError(
                    f"the rollout is not finite after step {self._step + 1}",
                    where=f"variable {name}",
                    fix="a shorter rollout; guards for the invariants that `scitoolkit validate` "
                    "proposes; or training with rollout.steps=2 and rollout.noise",
                )
        inputs |= member.layout.advanced(inputs, outputs)
        return outputs

    def state(self) -> dict[str, np.ndarray]:
        """Return the recurrent inputs of the next step of each member, as `NUMBER/VARIABLE`."""
        return {
            f"{k}/{name}": np.asarray(inputs[name])
            for k, (member, inputs) in enumerate(zip(self._members, self._given, strict=True))
            for name in member.layout.recurrent
        }

    def continue_at(self, step: int, state: Mapping[str, np.ndarray]) -> None:
        """Continue from a state after `step` steps, bit for bit."""
        self._step = step
        for key, values in state.items():
            number, _, name = key.partition("/")
            self._given[int(number)][name] = values
        for jitter in self._jitters or ():
            jitter.skip(step)


def rollout_members(
    emulator: AnyEmulator,
    first: Frames,
    steps: int,
    forcing: Callable[[int], Frames] | None = None,
    jitters: Sequence[Jitter] | None = None,
) -> Iterator[list[dict[str, np.ndarray]]]:
    """Yield the outputs of every member's rollout after 1, 2, ... steps.

    Args:
        emulator: see `Rollout`.
        first: the inputs at step 0.
        steps: number of steps.
        forcing: see `Rollout`.
        jitters: see `Rollout`.
    """
    running = Rollout(emulator, first, forcing, jitters)
    for _ in range(steps):
        yield running.advance()


def rollout(
    emulator: AnyEmulator,
    first: Frames,
    steps: int,
    forcing: Callable[[int], Frames] | None = None,
    jitter: Jitter | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the outputs after 1, 2, ... steps; for an ensemble, the mean of its members' rollouts.

    Args:
        emulator: see `Rollout`.
        first: the inputs at step 0.
        steps: number of steps.
        forcing: see `Rollout`.
        jitter: draws a symmetry for each step, the same for all members.

    Raises:
        NumericalError: a state is no longer finite.
    """
    jitters = copies(jitter, emulator)
    for members in rollout_members(emulator, first, steps, forcing, jitters):
        yield mean_of(emulator, members)


def copies(jitter: Jitter | None, emulator: AnyEmulator) -> list[Jitter] | None:
    """Return one jitter per member, all with the same draws; None without jitter."""
    return None if jitter is None else [copy.deepcopy(jitter) for _ in members_of(emulator)]


def mean_of(emulator: AnyEmulator, members: Sequence[Frames]) -> dict[str, np.ndarray]:
    """Return the outputs of an emulator, or the mean over an ensemble's members."""
    if isinstance(emulator, Emulator):
        return dict(members[0])
    return {n: np.mean([f[n] for f in members], axis=0) for n in members[0]}


class Jitter:
    """Random symmetries applied around each step of an emulator.

    Errors of a network are tied to its grid; in a different frame of reference for each step they
    do not accumulate in place.

    Args:
        config: the symmetries of the equations.
        layout: the emulator's.
        seed: of the draws.
    """

    def __init__(self, config: SymmetryConfig, layout: Layout, seed: int = 0) -> None:
        self.symmetries: Symmetries = Symmetries(config, layout)
        self._generator = np.random.default_rng(seed)

    def skip(self, steps: int) -> None:
        """Advance the random draws by `steps` steps."""
        for _ in range(steps):
            self._drawn()

    def _drawn(self) -> tuple[dict[str, int], list[str]]:
        config, sizes = self.symmetries.config, self.symmetries.sizes
        shifts = {d: int(self._generator.integers(sizes[d])) for d in config.shift}
        return shifts, [d for d in config.mirror if self._generator.random() < 0.5]

    def step(self, emulator: Emulator, inputs: Frames) -> dict[str, np.ndarray]:
        """Return the outputs of one sample, transformed back to the frame of the inputs."""
        shifts, mirrors = self._drawn()
        sample = {n: torch.from_numpy(np.asarray(v))[None, None] for n, v in inputs.items()}
        for dim, cells in shifts.items():
            sample = self.symmetries.shift(sample, dim, cells)
        for dim in mirrors:
            sample = self.symmetries.mirror(sample, dim)
        outputs = step_once(emulator, {n: v[0, 0].numpy() for n, v in sample.items()})
        # Undone in the opposite order: a shift after a mirror is the opposite shift before it.
        back = {n: torch.from_numpy(v)[None, None] for n, v in outputs.items()}
        for dim in mirrors:
            back = self.symmetries.mirror(back, dim)
        for dim, cells in shifts.items():
            back = self.symmetries.shift(back, dim, -cells)
        return {n: v[0, 0].numpy() for n, v in back.items()}


def jitter_of(config: EmulationConfig, layout: Layout) -> Jitter | None:
    """Return the jitter of a configuration; None without `rollout.jitter`."""
    return Jitter(config.symmetries, layout, config.seed) if config.rollout.jitter else None


def persistence(first: Frames, steps: int) -> Iterator[Frames]:
    """Yield the first frame `steps` times."""
    for _ in range(steps):
        yield first


def linear_extrapolation(
    before: Frames, first: Frames, steps: int, lengths: Sequence[float] | None = None
) -> Iterator[Frames]:
    """Yield linear extrapolations of the last two frames.

    Args:
        before: the frame before the first.
        first: the first frame.
        steps: number of steps.
        lengths: (1 + steps) length of the step before the first frame, and of each step after it;
            equal ones unless given.
    """
    for step in range(1, steps + 1):
        times = step if lengths is None else sum(lengths[1 : step + 1]) / lengths[0]
        yield {n: first[n] + times * (first[n] - before[n]) for n in first}


def _batch(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))[None]
