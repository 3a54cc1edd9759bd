"""Configuration of the export to C."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError


class ExportConfig(Config):
    """Options of `scitoolkit export RUN -o model.c` and `-o model.so`.

    Attributes:
        dtype: of arrays, weights and computation in C. With float64 the module is converted, and
            arrays of solvers in double precision are passed without a copy.
        derivatives: `jvp` and `vjp`, C functions of the Jacobian-vector and vector-Jacobian
            products; see `deploy.derivatives`.
        weights: of a `.c` file, `inside` it, or `beside` it in `NAME.bin`, which the assembler
            includes; unless given, beside above 8 MB, as compilers need 40 bytes of memory for a
            byte of a literal.
        tolerance: largest difference from the surrogate, relative to the largest value of an
            output; nothing is written if it is exceeded. 1e-4 for float32 and 1e-9 for float64
            unless given.
        vectors: width in bits of the vector registers of the target; that of this machine unless
            given.
        bits: of the weights of linear and recurrent layers: 8, 4 or 2; float32 unless given.
        activations: bits of the inputs of 8-bit layers: 16, or 8 for twice as many products in an
            instruction; those of 4 and 2 bits have 8.
        group: number of inputs that share a scale, a multiple of 16; by default 128 for 8 bits,
            otherwise 32.
        rounding: `nearest`, or `compensated`, which compensates rounding errors of an input by
            later inputs if that changes outputs less; by default compensated for 4 and 2 bits.
        keep: names of layers that are not changed, such as `model.head`, including their children.
        time_share: share of the measured time of linear layers and convolutions that remains after
            they are replaced by layers of lower rank, chosen by a latency table of this machine.
        ranks: ranks of layers by name, such as `{model.head: [16]}`, instead of chosen ones. With
            `bits`, the factors are quantised.
        max_error: largest difference from the float32 surrogate on held-out inputs and on extreme
            ones inside the box (`deploy.extremes`), relative to the range of an output on the
            held-out ones; nothing is written if it is exceeded.
        channels: `remove` dead channels of perceptrons and chains of convolutions, such as pruned
            ones; see `deploy.channels`.
        fastest: measure float32, quantised and low-rank forms, and write the fastest one on this
            machine within `max_error`; see `deploy.pareto`.
        search: number of combinations of bits, groups, rounding, kept layers, ranks and vectors to
            measure, of which the fastest within `max_error` is written; see `deploy.combinations`.
        device: `cuda` or `cpu`, of a `.so` that computes there by libtorch, which it needs where it
            runs; see `deploy.torch_library`. C code on the CPU, without torch, unless given.
        batch: number of samples in which `device` computes a call; all samples together unless
            given.
    """

    dtype: Literal["float32", "float64"] = "float32"
    derivatives: list[Literal["jvp", "vjp"]] = Field(default_factory=list)
    weights: Literal["inside", "beside"] | None = None
    tolerance: float | None = Field(None, ge=0)
    vectors: Literal[128, 256, 512] | None = None
    bits: Literal[2, 4, 8] | None = None
    activations: Literal[8, 16] | None = None
    group: int | None = Field(None, ge=16, multiple_of=16)
    rounding: Literal["nearest", "compensated"] | None = None
    keep: list[str] = Field(default_factory=list)
    time_share: float | None = Field(None, gt=0, lt=1)
    ranks: dict[str, list[PositiveInt]] | None = None
    max_error: float | None = Field(None, gt=0)
    channels: Literal["keep", "remove"] = "keep"
    fastest: bool = False
    search: PositiveInt | None = None
    device: Literal["cpu", "cuda"] | None = None
    batch: int | None = Field(None, gt=0, lt=1 << 31)

    @model_validator(mode="after")
    def _compressed_or_nothing(self) -> ExportConfig:
        if self.device is None and self.batch is not None:
            raise ValueError("batch without device: C code computes any number of samples")
        if self.device is not None:
            self._in_torch()
        if self.bits is not None and self.time_share is not None:
            raise ValueError(
                "bits and time_share: times of layers are measured in float32; give one of them, "
                "or search, which measures both together, or bits and ranks"
            )
        small = [
            n for n in ("bits", "time_share", "ranks", "search") if getattr(self, n) is not None
        ]
        small += ["fastest"] if self.fastest else []
        if small and (self.dtype == "float64" or self.derivatives):
            raise ValueError(
                f"{', '.join(small)} with dtype=float64 or derivatives: compressed forms compute "
                "in float32 and have no derivatives; leave one of them out"
            )
        if self.channels == "remove" and self.derivatives:
            raise ValueError("channels=remove with derivatives: leave one of them out")
        if len(set(self.derivatives)) < len(self.derivatives):
            raise ValueError(f"derivatives={self.derivatives}: each of them once")
        if self.ranks is not None and self.time_share is not None:
            raise ValueError("ranks and time_share, which chooses ranks: give one of them")
        if self.fastest and self.search is not None:
            raise ValueError("fastest and search, which includes it: give one of them")
        for chooser in ("fastest", "search"):
            if getattr(self, chooser):
                self._left_to(chooser)
        self._read()
        return self

    @property
    def allowed(self) -> float:
        """Largest difference from the surrogate."""
        if self.tolerance is not None:
            return self.tolerance
        return 1e-4 if self.dtype == "float32" else 1e-9

    @property
    def input_bits(self) -> int:
        """Bits of the inputs of quantised layers."""
        return (self.activations or 16) if self.bits == 8 else 8

    def _in_torch(self) -> None:
        """Reject options of C code that libtorch lacks."""
        own = ("device", "batch", "dtype", "tolerance")
        defaults = {
            name: field.get_default(call_default_factory=True)
            for name, field in type(self).model_fields.items()
            if name not in own
        }
        others = [name for name, value in defaults.items() if getattr(self, name) != value]
        if others:
            raise ValueError(
                f"{', '.join(others)} with device={self.device}: options of C code, which libtorch "
                f"lacks; leave device or {' and '.join(others)} out"
            )

    def _left_to(self, chooser: str) -> None:
        """Reject options that `fastest` or `search` chooses."""
        chosen = ["bits", "time_share", "ranks"]
        chosen += ["group", "rounding", "vectors"] if chooser == "search" else []
        if any(getattr(self, name) is not None for name in chosen):
            raise ValueError(f"{chooser}: it chooses {', '.join(chosen)}; leave them out")
        if self.max_error is None:
            raise ValueError(f"{chooser} needs max_error, such as max_error=0.01")
        if self.channels == "remove":
            raise ValueError(
                f"{chooser} with channels=remove: it always removes dead channels; leave it out"
            )

    def _read(self) -> None:
        """Reject options without effect."""
        if self.activations is not None and self.bits != 8:
            raise ValueError("activations without bits=8: inputs of other quantised layers have 8")
        for name in ("group", "rounding"):
            if getattr(self, name) is not None and self.bits is None:
                raise ValueError(f"{name} without bits: float32 weights are exact")
        if self.fastest or self.search is not None:
            return
        if self.keep and self.bits is None and self.time_share is None:
            raise ValueError("keep without bits or time_share: nothing is changed")
        changed = (self.bits, self.time_share, self.ranks)
        if self.max_error is not None and all(x is None for x in changed):
            raise ValueError("max_error without bits, time_share or ranks: nothing is changed")


def require_shared_library(path: Path) -> None:
    """Refuse `device` for other files than a library that computes by libtorch.

    Raises:
        ConfigError: another suffix than `.so`.
    """
    if path.suffix != ".so":
        raise ConfigError(
            f"device for {path.suffix or 'a folder'}",
            where=str(path),
            allowed=".so, a library that computes by libtorch",
            fix="-o model.so, or leave device out",
        )
