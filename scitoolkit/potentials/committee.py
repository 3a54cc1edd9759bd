"""Disagreement of a committee of potentials, an estimate of their error on new configurations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.prediction import predict_frame


def model_deviation(models: Sequence[Potential], frame: Configuration) -> dict[str, float]:
    """Return the disagreement of at least two potentials on one configuration.

    The deviation of an atom's force is sqrt(mean over models of |F - mean F|²), as in deepmd-kit's
    `model_devi`; its maximum, minimum and mean over atoms are returned. The deviation of the virial
    per atom is the standard deviation of each of its nine components (maximum and root mean
    square), that of the energy per atom its standard deviation.

    Args:
        models: potentials that have all species of the configuration.
        frame: without labels.

    Returns:
        force_max, force_min, force_mean (eV/Å), virial_max, virial_mean, energy (eV/atom).

    Raises:
        ConfigError: fewer than two models.

    Source: Zhang et al., Phys. Rev. Materials 3, 023804 (2019), eq. 4.
    """
    if len(models) < 2:
        raise ConfigError(f"{len(models)} model", allowed="two or more to compare")
    predictions = [predict_frame(model, frame) for model in models]
    atoms = len(frame.species)
    forces = np.stack([f["forces"] for f in predictions])
    spread = np.sqrt(((forces - forces.mean(axis=0)) ** 2).sum(axis=2).mean(axis=0))
    virial = np.stack([f["virial"][0] for f in predictions]).std(axis=0) / atoms
    energy = np.array([f["energy"][0] for f in predictions]).std() / atoms
    return {
        "force_max": float(spread.max()),
        "force_min": float(spread.min()),
        "force_mean": float(spread.mean()),
        "virial_max": float(virial.max()),
        "virial_mean": float(np.sqrt((virial**2).mean())),
        "energy": float(energy),
    }
