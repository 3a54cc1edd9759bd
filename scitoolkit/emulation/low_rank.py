"""Emulators in low rank: built with factors in place of layers, and begun from trained weights."""

from __future__ import annotations

import numpy as np
import torch

from scitoolkit.core.content import find_content
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.ensemble import AnyEmulator
from scitoolkit.io.campaign.split import SplitRows
from scitoolkit.ops.low_rank import Moments, factors, layers_of, replaced

SAMPLES = 16
"""Samples of the training part that the inputs of layers are read from."""


def begin_from_trained(
    emulator: AnyEmulator, config: EmulationConfig, data: Data, parts: SplitRows
) -> None:
    """Give an emulator in low rank the weights that change the trained one's outputs least.

    The normalisation is the trained one's too.

    Args:
        emulator: built with `config.low_rank.ranks`.
        config: of the job.
        data: what it will be trained on.
        parts: of its samples.

    Raises:
        ConfigError: the trained emulator is of other variables, on another grid, or another
            network.
    """
    assert config.low_rank is not None
    folder = ModelFolder(find_content("surrogates", config.low_rank.of))
    trained = surrogate.load(folder.path, folder.config(EmulationConfig))
    layers = {name: layer for names, layer in layers_of(trained) for name in names}
    wanted = {n: layers[n] for n in config.low_rank.ranks if n in layers}
    rows = np.concatenate([np.arange(block.start, block.stop) for block in parts["train"]])
    rows = rows[rows >= config.data.samples_before][:: -(-len(rows) // SAMPLES)]
    with torch.no_grad(), Moments(wanted) as seen:
        for row in rows:
            frame = data.inputs(int(row), trained.layout, config.data.lead)
            trained(*(torch.from_numpy(np.asarray(frame[v.name], np.float32))[None]
                      for v in trained.layout.inputs))  # fmt: skip
    replaced(
        trained, config.low_rank.ranks,
        lambda name, layer, ranks: factors(layer, ranks, seen[name] if name in seen else None),
    )  # fmt: skip
    try:
        found = emulator.load_state_dict(trained.state_dict(), strict=False)
        wrong = [*found.missing_keys, *(k for k in found.unexpected_keys if not _idle(k, config))]
    except RuntimeError as error:
        wrong = [" ".join(str(error).split())[:200]]
    if wrong:
        raise ConfigError(
            f"the emulator in low_rank.of is another one: {', '.join(wrong[:3])}",
            where="low_rank.of", fix="the data, model and coordinates of its configuration",
        )  # fmt: skip


def _idle(key: str, config: EmulationConfig) -> bool:
    """Whether a weight is of a diagnostic network that guards have made idle."""
    return key.startswith("diagnose.") and config.diagnostic is None
