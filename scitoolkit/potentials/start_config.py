"""Configuration of fine-tuning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config, DataPath


class StartConfig(Config):
    """Fine-tuning: start from trained weights instead of random ones.

    The model's settings are those of the weights: `model:` only needs its `name`, and may set
    `precision` and `seed`. The scales are those of the weights. E0 is refitted to the errors of
    the weights on the new energies, which another level of theory shifts, unless `e0` gives
    energies.

    Attributes:
        path: run directory, name of a shipped surrogate, `.pt` file of `convert_mace` (mace-torch)
            or `.dp` file (deepmd-kit).
        frozen: names of parameters that are not trained, with wildcards: `embedding`, `layers.0.*`.
        new_elements: `add` gives elements that the weights do not have random weights and an E0,
            and leaves those of the other elements unchanged; `refuse` raises an error.
        replay: files of the former training whose frames are trained on in addition to the new
            ones, against forgetting; their energies are shifted by the change of E0.
        replay_frames: number of these frames, drawn by the `seed` of the job; all by default.
    """

    path: str = Field(min_length=1)
    frozen: list[str] = Field(default_factory=list)
    new_elements: Literal["refuse", "add"] = "refuse"
    replay: list[DataPath] = Field(default_factory=list)
    replay_frames: PositiveInt | None = None
