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
        keep: names of layers that stay in float32, as `model.head`; a name stands for all below it.
        max_error: largest difference from the float32 surrogate on held-out inputs, relative to
            the range of an output there; nothing is written beyond it.
    """

    tolerance: float = Field(1e-4, ge=0)
    vectors: Literal[128, 256, 512] | None = None
    bits: Literal[2, 4, 8] | None = None
    group: int | None = Field(None, ge=16, multiple_of=16)
    rounding: Literal["nearest", "compensated"] | None = None
    keep: list[str] = Field(default_factory=list)
    max_error: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _bits_or_nothing(self) -> ExportConfig:
        for name in ("group", "rounding", "max_error"):
            if getattr(self, name) is not None and self.bits is None:
                raise ValueError(f"{name} without bits: float32 weights are exact")
        if self.keep and self.bits is None:
            raise ValueError("keep without bits: float32 weights are exact")
        return self
