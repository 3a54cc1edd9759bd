"""How a surrogate is written as C."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, model_validator

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
        rank_selection: `exact`, the least sum of the changes that layers make one by one, or
            `gates`, learned by gradient descent over all layers together, which takes minutes;
            exact unless given.
        ranks: of some layers, by name, as `{model.head: [16]}`: given instead of chosen. With
            `bits`, the factors are in few bits.
        max_error: largest difference from the float32 surrogate on held-out inputs, relative to
            the range of an output there; nothing is written beyond it.
        channels: `remove` those of perceptrons and chains of convolutions that do nothing, as those
            pruned in training; see `deploy.channels`.
        fastest: try float32, few bits and low ranks, and write what is fastest on this machine
            within `max_error`; see `deploy.pareto`.
        search: number of combinations of bits, groups, rounding, layers kept, ranks and vectors to
            try, of which the fastest within `max_error` is written; see `deploy.combinations`.
    """

    tolerance: float = Field(1e-4, ge=0)
    vectors: Literal[128, 256, 512] | None = None
    bits: Literal[2, 4, 8] | None = None
    group: int | None = Field(None, ge=16, multiple_of=16)
    rounding: Literal["nearest", "compensated"] | None = None
    keep: list[str] = Field(default_factory=list)
    time_share: float | None = Field(None, gt=0, lt=1)
    rank_selection: Literal["exact", "gates"] | None = None
    ranks: dict[str, list[PositiveInt]] | None = None
    max_error: float | None = Field(None, gt=0)
    channels: Literal["keep", "remove"] = "keep"
    fastest: bool = False
    search: PositiveInt | None = None

    @model_validator(mode="after")
    def _compressed_or_nothing(self) -> ExportConfig:
        if self.bits is not None and self.time_share is not None:
            raise ValueError(
                "bits and time_share: times of layers are measured in float32; one, or search, "
                "which measures both together, or bits and ranks"
            )
        if self.ranks is not None and self.time_share is not None:
            raise ValueError("ranks and time_share, which chooses them: one of both")
        if self.rank_selection is not None and self.time_share is None:
            raise ValueError("rank_selection without time_share: no ranks are chosen")
        if self.fastest and self.search is not None:
            raise ValueError("fastest and search: search tries what fastest does first; one")
        for chooser in ("fastest", "search"):
            if getattr(self, chooser):
                self._left_to(chooser)
        self._read()
        return self

    def _left_to(self, chooser: str) -> None:
        """Refuse what `fastest` or `search` would choose."""
        chosen = ["bits", "time_share", "ranks"]
        chosen += ["group", "rounding", "vectors"] if chooser == "search" else []
        if any(getattr(self, name) is not None for name in chosen):
            raise ValueError(f"{chooser}: it chooses {', '.join(chosen)}; leave them out")
        if self.max_error is None:
            raise ValueError(f"{chooser} without max_error, which it keeps to: max_error=0.01, say")
        if self.channels == "remove":
            raise ValueError(
                f"{chooser} with channels=remove: "
                + ("export by bits or time_share instead" if chooser == "fastest"
                   else "it removes them where there are any; leave it out")
            )  # fmt: skip

    def _read(self) -> None:
        """Refuse what nothing reads."""
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
