"""A potential with a second readout for the frames of a former training.

Multi-head fine-tuning (Batatia et al. 2023, arXiv:2401.00096): new and replayed frames, whose
levels of theory may differ, train the same features through readouts and E0 of their own.
"""

from __future__ import annotations

import fnmatch

import torch
from torch import Tensor, nn
from torch.func import functional_call

from scitoolkit.core.contracts import Batch
from scitoolkit.potentials.graph import of_frames
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.model_config import ModelConfig

FORMER = 1
"""Value of a batch's `head` for configurations of the former training."""
OWN_BUFFERS = ("shift", "interaction.energy", "interaction.change", "interaction.density")


class TwoHeads(nn.Module):
    """Potential with a second readout, for the configurations whose `head` is 1.

    Both heads begin with the energies of `source`, but for the E0 of `model`.

    Args:
        model: adopted from `source`, with the E0 of the new frames.
        source: the model of the former training, of the same kind; its elements come first.

    Attributes:
        model: with the new readout.
        own: readout, E0 and mean interaction energies of the former head, by name in the model.
    """

    not_compiled: str = Potential.not_compiled

    def __init__(self, model: Potential, source: Potential) -> None:
        super().__init__()
        self.model: Potential = model
        self._names: dict[str, str] = {}
        self.own: nn.Module = nn.Module()
        for name, value in model.named_parameters():
            if any(fnmatch.fnmatch(name, pattern) for pattern in model.readout):
                own = nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
                self.own.register_parameter(self._key(name), own)
        shift = source.lone_energies() if model.is_pinned else source.get_buffer("shift")
        former = {"shift": shift}
        if source.interaction is not None:
            former |= {f"interaction.{n}": v for n, v in source.interaction.state_dict().items()}
        state = dict(model.named_parameters()) | dict(model.named_buffers())
        for name in OWN_BUFFERS:
            if name not in state:
                continue
            values = state[name].detach().clone()
            if name in former:
                values = former[name].detach().clone() if values.ndim == 0 else values
                if values.ndim:
                    values[: len(source.type_map)] = former[name]
            elif name != "interaction.density":
                values.zero_()
            if isinstance(state[name], nn.Parameter):
                self.own.register_parameter(self._key(name), nn.Parameter(values))
            else:
                self.own.register_buffer(self._key(name), values)
        self.train(model.training)

    def _key(self, name: str) -> str:
        """Return the name of a tensor without dots, which names of parameters cannot have."""
        key = name.replace(".", "_")
        self._names[key] = name
        return key

    def _former(self) -> dict[str, Tensor]:
        return {name: getattr(self.own, key) for key, name in self._names.items()}

    def forward(self, graph: Batch) -> dict[str, Tensor]:
        """Return what `Potential.forward` does, each configuration through its head."""
        if "head" not in graph:
            return self.model(graph)
        former = graph["head"] == FORMER
        if bool(former.all()):
            return functional_call(self.model, self._former(), (graph,))
        if not bool(former.any()):
            return self.model(graph)
        parts = [
            self.model(of_frames(graph, ~former)),
            functional_call(self.model, self._former(), (of_frames(graph, former),)),
        ]
        atoms = former[graph["frame"]]
        of_atoms, of_configurations = _order(atoms), _order(former)
        return {
            name: torch.cat([part[name] for part in parts])[
                of_atoms if name in ("atomic_energy", "forces") else of_configurations
            ]
            for name in parts[0]
        }

    @torch.no_grad()
    def former_model(self, settings: ModelConfig) -> Potential:
        """Return a potential with the readout and E0 of the former training, not pinned."""
        former = settings.build(self.model.type_map)
        former.load_state_dict(self.model.state_dict() | self._former())
        former.is_pinned = self.model.is_pinned
        former.unpin()
        return former


def _order(second: Tensor) -> Tensor:
    """Return where each element is among those of the first part, then those of the second."""
    return torch.argsort(torch.argsort(second.long(), stable=True))
