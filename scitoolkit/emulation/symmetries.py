"""Random symmetries of the equations, applied to training samples."""

from __future__ import annotations

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.emulation.config import SymmetryConfig
from scitoolkit.emulation.variables import Layout


class Symmetries:
    """Random shifts and mirrors, drawn from torch's generator so that resumed runs draw the same.

    Args:
        config: shifts and mirrors.
        layout: dims of the variables; a variable without a dim keeps its values, but changes sign
            under the mirror of that dim if so configured.

    Example:
        >>> from scitoolkit.emulation.variables import Variable
        >>> layout = Layout((), (Variable("u", ("x",), (4,), "", True),), {"x": 4}, {}, "t")
        >>> symmetries = Symmetries(SymmetryConfig(mirror={"x": ["u"]}), layout)
        >>> symmetries.mirror({"u": torch.arange(4.0).view(1, 1, 4)}, "x")["u"].tolist()
        [[[-3.0, -2.0, -1.0, -0.0]]]
    """

    def __init__(self, config: SymmetryConfig, layout: Layout) -> None:
        self.config = config
        # Dims of a batch: sample, step, then those of the variable.
        variables = {v.name: v for v in (*layout.inputs, *layout.outputs)}
        self.dims: dict[str, list[str]] = {n: list(v.dims) for n, v in variables.items()}
        self.stored_as: dict[str, str] = {n: v.stored_as for n, v in variables.items()}
        self.sizes: dict[str, int] = layout.grid

    def draw(self, batch: Batch) -> Batch:
        """Return a batch of (B, step, *dims) with each sample under a random transformation."""
        if not self.config.shift and not self.config.mirror:
            return batch
        names = [n for n in self.dims if n in batch]
        samples = []
        for i in range(len(batch[names[0]])):
            sample = {n: batch[n][i : i + 1] for n in names}
            for dim in self.config.shift:
                sample = self.shift(sample, dim, int(torch.randint(self.sizes[dim], ())))
            for dim in self.config.mirror:
                if torch.rand(()) < 0.5:
                    sample = self.mirror(sample, dim)
            samples.append(sample)
        return {**batch, **{n: torch.cat([s[n] for s in samples]) for n in names}}

    def shift(self, sample: dict[str, Tensor], dim: str, cells: int) -> dict[str, Tensor]:
        """Return a sample shifted by `cells` along a periodic dim."""
        return {
            n: torch.roll(v, cells, 2 + self.dims[n].index(dim)) if dim in self.dims[n] else v
            for n, v in sample.items()
        }

    def mirror(self, sample: dict[str, Tensor], dim: str) -> dict[str, Tensor]:
        """Return a sample mirrored along a dim."""
        out = {}
        for name, value in sample.items():
            if dim in self.dims[name]:
                value = value.flip(2 + self.dims[name].index(dim))
            out[name] = -value if self.stored_as[name] in self.config.mirror[dim] else value
        return out
