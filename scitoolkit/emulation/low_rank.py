"""Low-rank emulators, initialised from the weights of a trained emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch

from scitoolkit.core.content import find_content
from scitoolkit.core.data_differences import Accepts, compare, refuse
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.emulator import Emulator
from scitoolkit.ops.low_rank import InputMoments, factors, layers_of, replaced

SAMPLES = 16
"""Samples of the training split that layers' inputs are recorded on."""


def begin_from_trained(
    emulator: Emulator, config: EmulationConfig, data: Data, training: Sequence[range]
) -> None:
    """Initialise a low-rank emulator so that its outputs are closest to those of a trained one.

    The normalisation is copied, too.

    Args:
        emulator: built with `config.low_rank.ranks`.
        config: the job.
        data: the training data.
        training: samples of the training part.

    Raises:
        DataError: the data differ from those of the trained emulator.
        ConfigError: the trained emulator has other variables, another grid or another network.
    """
    assert config.low_rank is not None
    folder = ModelFolder(find_content("surrogates", config.low_rank.of))
    facts = folder.facts()
    if facts is not None:
        # The normalisation is copied, so that units have to be equal.
        step: Literal["same", "any"] = "same" if config.data.lead else "any"
        accepts = Accepts(grid="any", step=step, convert=False)
        refuse(compare(replace(facts, parameters={}), data.facts, accepts), data.where)
    trained = surrogate.load(folder.path, folder.config(EmulationConfig))
    layers = {name: layer for names, layer in layers_of(trained) for name in names}
    wanted = {n: layers[n] for n in config.low_rank.ranks if n in layers}
    rows = np.concatenate([np.arange(block.start, block.stop) for block in training])
    rows = rows[rows >= config.data.samples_before][:: -(-len(rows) // SAMPLES)]
    with torch.no_grad(), InputMoments(wanted) as seen:
        for row in rows:
            frame = data.inputs(int(row), trained.layout, config.data.lead)
            trained(
                *(
                    torch.from_numpy(np.asarray(frame[v.name], np.float32))[None]
                    for v in trained.layout.inputs
                )
            )
    replaced(
        trained,
        config.low_rank.ranks,
        lambda name, layer, ranks: factors(layer, ranks, seen[name] if name in seen else None),
    )
    try:
        unmatched = emulator.load_state_dict(trained.state_dict(), strict=False)
        wrong = [
            *unmatched.missing_keys,
            *(k for k in unmatched.unexpected_keys if not _idle(k, config)),
        ]
    except RuntimeError as error:
        wrong = [" ".join(str(error).split())[:200]]
    if wrong:
        raise ConfigError(
            f"the emulator in low_rank.of does not match: {', '.join(wrong[:3])}",
            where="low_rank.of",
            fix="use the data, model and coordinates of its configuration",
        )


def _idle(key: str, config: EmulationConfig) -> bool:
    """Return whether a weight belongs to a diagnostic network that guards replace."""
    return key.startswith("diagnose.") and config.diagnostic is None
