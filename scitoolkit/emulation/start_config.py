"""Configuration of emulators that start from trained weights."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from scitoolkit.core.config import DataPath
from scitoolkit.surrogate.config import TrainedStart


class EmulatorStart(TrainedStart):
    """Fine-tuning: start from the weights and the normalisation of a trained emulator.

    The network, and settings that change what its weights mean, have to be those of the weights.
    The data may have another grid, other parameters and, with `new_variables`, more variables;
    before its first step the emulator returns what the trained one returns for the variables that
    both have, unless the weights of new inputs are random.

    Attributes:
        path: run directory or name of a shipped surrogate.
        frozen: names of parameters that are not trained, with wildcards:
            `advance.network.encoders.*`.
        new_variables: `add` gives variables that the weights do not have random weights for
            outputs, zero ones for inputs, and a normalisation measured on the new data; `random`
            gives random weights for inputs, too, which changes the other outputs at first;
            `refuse` raises an error.
        replay: files of the former training that are trained on in addition to the new ones,
            against forgetting.
        replay_simulations: number of their simulations, drawn by the `seed` of the job; all by
            default.
    """

    new_variables: Literal["refuse", "add", "random"] = "refuse"
    replay: list[DataPath] = Field(default_factory=list)
    replay_simulations: PositiveInt | None = None
