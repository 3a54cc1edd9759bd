"""How a surrogate is written as C."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from scitoolkit.core.config import Config


class ExportConfig(Config):
    """Options of `scitoolkit export RUN -o model.c` and `-o model.so`.

    Attributes:
        tolerance: largest difference from the surrogate, relative to an output's largest value;
            nothing is written beyond it.
        vectors: bits of the vector registers that the code is written for; those of this
            machine unless given.
        bits: of the weights of linear and recurrent layers: 8, 4 or 2; float32 unless given.
        group: inputs that share a scale, a multiple of 16; 128 for 8 bits, otherwise 32.
        rounding: `nearest`, or `compensated`: each input's rounding errors corrected by the
            inputs after it, where that changes outputs less; compensated for 4 and 2 bits
            unless given.
        keep: names of layers that stay as they are, as `model.head`, each for all below it.
        time_share: of the measured time of linear layers and convolutions that is left: they are
            replaced by layers of lower rank, chosen by a table of times on this machine.
        max_error: largest difference from the float32 surrogate on held-out inputs, relative to
            the range of an output there; nothing is written beyond it.
        channels: `remove` those of perceptrons and chains of convolutions that do nothing, as those
            pruned in training; see `deploy.channels`.
        fastest: try float32, few bits and low ranks, and write what is fastest on this machine
            within `max_error`; see `deploy.pareto`.
    """

    tolerance: float = Field(1e-4, ge=0)
    vectors: Literal[128, 256, 512] | None = None
    bits: Literal[2, 4, 8] | None = None
    group: int | None = Field(None, ge=16, multiple_of=16)
    rounding: Literal["nearest", "compensated"] | None = None
    keep: list[str] = Field(default_factory=list)
    time_share: float | None = Field(None, gt=0, lt=1)
    max_error: float | None = Field(None, gt=0)
    channels: Literal["keep", "remove"] = "keep"
    fastest: bool = False

    @model_validator(mode="after")
    def _compressed_or_nothing(self) -> ExportConfig:
        if self.bits is not None and self.time_share is not None:
            raise ValueError("bits and time_share: times of layers are measured in float32; one")
        if self.fastest and (self.bits is not None or self.time_share is not None):
            raise ValueError("fastest: it chooses bits and time_share; leave them out")
        if self.fastest and self.max_error is None:
            raise ValueError("fastest without max_error, which it keeps to: max_error=0.01, say")
        if self.fastest and self.channels == "remove":
            raise ValueError("fastest with channels=remove: export by bits or time_share instead")
        for name in ("group", "rounding"):
            if getattr(self, name) is not None and self.bits is None:
                raise ValueError(f"{name} without bits: float32 weights are exact")
        for name in ("keep", "max_error"):
            if self.fastest:
                continue
            if getattr(self, name) and self.bits is None and self.time_share is None:
                raise ValueError(f"{name} without bits or time_share: nothing is changed")
        return self
