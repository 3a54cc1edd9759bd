"""Configuration of fine-tuning: the weights that a training starts from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from scitoolkit.core.config import Config, DataPath


class StartConfig(Config):
    """Fine-tuning: start from trained weights instead of random ones.

    The model's settings are those of the weights: `model:` needs its `name` alone, and may choose
    `precision`. Scales are kept, and E0 is fitted to what the weights leave unexplained of the
    new energies (another level of theory shifts them), unless `e0` gives energies.

    Attributes:
        path: run directory, name of a shipped surrogate, `.pt` file of `convert_mace` (mace-torch)
            or `.dp` file (deepmd-kit).
        frozen: parameters that are not trained, by names with wildcards: `embedding`, `layers.0.*`.
        new_elements: `add` gives elements that the weights do not know random weights and an E0,
            and changes nothing of the others; `refuse` stops at them.
        replay: frames of the former training to train on besides the new ones, so that less is
            forgotten; their energies are shifted by the change of E0.
        replay_frames: how many of them are drawn, by the `seed` of the job; all unless given.
    """

    path: str = Field(min_length=1)
    frozen: list[str] = Field(default_factory=list)
    new_elements: Literal["refuse", "add"] = "refuse"
    replay: list[DataPath] = Field(default_factory=list)
    replay_frames: PositiveInt | None = None
