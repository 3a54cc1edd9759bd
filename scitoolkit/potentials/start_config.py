"""Configuration of fine-tuning."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.config import Config, DataPaths
from scitoolkit.core.content import find_content
from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.model_folder import ModelFolder


class LowRankChangeConfig(Config):
    """Training of changes of low rank instead of whole matrices (LoRA, arXiv:2106.09685).

    Attributes:
        rank: of the change of each matrix; matrices that are too small to gain are trained whole.
        parameters: names with wildcards of the parameters to train; others stay as they are.
    """

    rank: PositiveInt = 4
    parameters: list[str] = Field(default=["*"], min_length=1)


class StartConfig(Config):
    """Fine-tuning: start from trained weights instead of random ones.

    The model's settings are those of the weights: `model:` may be left out, or have its `name`,
    `precision` and `seed`. Without `training.optimizer`, the learning rate is 1e-4 with a cosine.
    The scales are those of the weights. E0 is refitted to the errors of the weights on the new
    energies, which another level of theory shifts, unless `e0` gives energies. Elements that
    neither the data nor the replayed frames have keep their weights and E0. The report compares
    the force errors of the start with those afterwards, also on data of the former training.

    Attributes:
        path: run directory, name of a shipped surrogate, `.pt` file of `convert_mace` (mace-torch),
            `.dp` file (deepmd-kit) or `.ckpt` file of `nequip-train`.
        head: name of the head of a `.pt` file with several.
        low_rank: train changes of low rank; all weights by default.
        frozen: names of parameters that are not trained, with wildcards: `embedding`, `layers.0.*`.
        new_elements: `add` gives elements that the weights do not have random weights and an E0,
            and leaves those of the other elements unchanged; `refuse` raises an error.
        replay: files of the former training whose frames are trained on in addition to the new
            ones, against forgetting; their energies are shifted by the change of E0.
        replay_frames: number of these frames, drawn by the `seed` of the job; all by default.
        heads: `separate` gives the replayed frames a readout and E0 of their own, so that the two
            levels of theory share all other weights (multi-head fine-tuning, arXiv:2401.00096);
            the potential with the former readout is saved in `former/` of the run.
        former: files of the former training to report the errors on, before and after; by default
            those of `replay`, without the frames that were trained on if some are left.
    """

    path: str = Field(min_length=1)
    frozen: list[str] = Field(default_factory=list)
    new_elements: Literal["refuse", "add"] = "refuse"
    replay: DataPaths = Field(default_factory=list)
    replay_frames: PositiveInt | None = None
    head: str | None = None
    low_rank: LowRankChangeConfig | None = None
    heads: Literal["shared", "separate"] = "shared"
    former: DataPaths = Field(default_factory=list)

    @model_validator(mode="after")
    def _needs_replay(self) -> StartConfig:
        if self.heads == "separate" and not self.replay:
            raise ValueError("heads: separate needs frames of the former training: replay: [FILE]")
        return self


def started_model(start: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the settings of the model that a section `start:` begins from; None if not readable.

    The configuration of a run then names them all, so that it can be resumed.
    """
    path = Path(start["path"])
    try:
        if path.suffix == ".pt":
            from scitoolkit.potentials.equivariant.mace_weights import read_mace

            return read_mace(path, head=start.get("head")).config.model_dump()  # type: ignore[attr-defined]
        if path.suffix == ".dp":
            from scitoolkit.potentials.deepmd.weights import read_deepmd

            return read_deepmd(path).config.model_dump()
        if path.suffix == ".ckpt":
            from scitoolkit.potentials.equivariant.nequip_weights import read_nequip

            return read_nequip(path).config.model_dump()  # type: ignore[attr-defined]
        file = ModelFolder(find_content("surrogates", start["path"])).path / "config.yaml"
        return dict(yaml.safe_load(file.read_text(encoding="utf-8"))["model"])
    except (ScitoolkitError, OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None  # the training names what is wrong
