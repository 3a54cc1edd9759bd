"""Description of an exported potential: kernels, settings and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.potentials.equivariant.pair_repulsion import PairRepulsion
from scitoolkit.potentials.mean_interaction import MeanInteraction
from scitoolkit.potentials.zbl import AMPLITUDES, DECAYS, Zbl

FOLDER = Path(__file__).parent / "c"
REAL = {torch.float32: "float", torch.float64: "double"}


@dataclass(frozen=True)
class Kernel:
    """A translation unit of the library.

    Attributes:
        text: C source.
        flags: compiler flags in addition to those of all units.
        functions: functions that are defined by macros, in addition to those found in the text.
    """

    text: str
    flags: Sequence[str] = ()
    functions: Sequence[str] = ()


@dataclass
class LibrarySource:
    """Source of an exported potential.

    Attributes:
        driver: name of the C file in `export/c` that runs the model.
        species: type map.
        cutoff: Å.
        dtype: of the arithmetic.
        widest_row: largest number of values in a feature row that processes exchange; 0 for
            strictly local models.
        kernels: generated units by name.
        settings: macros of the driver.
        files: generated headers by name.
        arrays: arrays of the weights file by name, in float64 or `dtype`.
    """

    driver: str
    species: Sequence[str]
    cutoff: float
    dtype: torch.dtype
    widest_row: int = 0
    kernels: dict[str, Kernel] = field(default_factory=dict)
    settings: dict[str, int | float] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def real(self) -> str:
        """C type of the arithmetic."""
        return REAL[self.dtype]

    def add(self, **arrays: Tensor) -> None:
        """Add arrays in the dtype of the arithmetic."""
        for name, tensor in arrays.items():
            self.arrays[name] = tensor.detach().to(self.dtype).cpu().contiguous().numpy()

    def add_double(self, **arrays: Tensor) -> None:
        """Add arrays in float64."""
        for name, tensor in arrays.items():
            self.arrays[name] = tensor.detach().double().cpu().contiguous().numpy()

    def add_zbl(self, zbl: Zbl | None) -> None:
        """Add the ZBL repulsion of `model.zbl`, if any."""
        if zbl is not None:
            table = [zbl.pairs.flatten(), torch.tensor([*AMPLITUDES, *DECAYS], dtype=torch.float64)]
            self._add_pairs("zbl", table, 1)

    def add_interaction(self, interaction: MeanInteraction | None) -> None:
        """Add the mean interaction energies, if any."""
        if interaction is not None:
            constants = [interaction.density, torch.tensor(interaction.cutoff).double()]
            table = torch.cat([torch.stack(constants).cpu(), interaction.means.cpu()])
            self.settings["STK_INTERACTION"] = 1
            self.add_double(interaction=table)

    def add_pair_repulsion(self, repulsion: PairRepulsion | None, scale: Tensor | float) -> None:
        """Add the ZBL repulsion of mace-torch or nequip, if any, multiplied by `scale`."""
        if repulsion is None:
            return
        pairs, amplitudes = repulsion.pair_table()
        pairs[0] *= float(scale)
        decays = torch.tensor(repulsion.constants.decays, dtype=torch.float64)
        self._add_pairs("pair_repulsion", [pairs.flatten(), amplitudes, decays], repulsion.envelope)

    def _add_pairs(self, name: str, parts: Sequence[Tensor], power: int) -> None:
        self.settings[f"STK_{name.upper()}"] = power
        self.add_double(**{name: torch.cat(list(parts))})


def refuse(found: Mapping[str, bool], what: str) -> None:
    """Refuse to export a model with an unsupported feature.

    Args:
        found: {unsupported feature: whether the model has it}.
        what: the model, for the message.

    Raises:
        ConfigError: the model has one of the features.
    """
    for reason, holds in found.items():
        if holds:
            raise ConfigError(
                f"{what} with {reason} cannot be exported",
                where="model",
                allowed="the models listed in docs/reference/engines.md",
            )
