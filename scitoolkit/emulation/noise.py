"""The noise of probabilistic emulators, and the score that trains them.

The noise of a sample follows from a seed and the sample's values, not from the process that
computes it: any number of processes draw the same, a resumed training or prediction continues with
the same, and a rollout from a state can be repeated.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

TRAINING, VALIDATION, ROLLOUT = 0, 1, 2


def noise_of(state: np.ndarray, shape: Sequence[int], *seeds: int) -> np.ndarray:
    """Return the noise of one sample, standard normal float32 of a shape.

    Args:
        state: values of the sample.
        shape: of the noise.
        seeds: further numbers that it depends on, such as the step.

    Example:
        >>> state = np.zeros(3, np.float32)
        >>> bool((noise_of(state, [2], 7) == noise_of(state, [2], 7)).all())
        True
    """
    digest = zlib.crc32(np.ascontiguousarray(state, np.float32).tobytes())
    generator = np.random.default_rng([*seeds, digest])
    return generator.standard_normal(tuple(shape), np.float32)


def fair_crps(errors: Tensor) -> Tensor:
    """Return the fair continuous ranked probability score of an ensemble.

    It is ``mean |e_i| - sum_(i < j) |e_i - e_j| / (m (m - 1))``, whose expectation over the members
    is least where they are draws from the distribution of the truth, whatever their number m (Ferro
    2014, doi:10.1002/qj.2270).

    Args:
        errors: (B, m, ...) members minus truth; m is 2 or more.

    Returns:
        (B, ...).

    Example:
        >>> fair_crps(torch.tensor([[-1.0, 3.0]])).tolist()
        [0.0]
    """
    members = errors.unbind(1)
    pairs = itertools.combinations(members, 2)
    apart = torch.stack([(one - other).abs() for one, other in pairs]).sum(0)
    return errors.abs().mean(1) - apart / (len(members) * (len(members) - 1))
