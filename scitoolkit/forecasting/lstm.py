"""POD-LSTM: stacked LSTMs from a window of mode coefficients to the coefficients of all leads.

The head `all_steps` maps input step i to lead i, so that its first output depends on one input
only. `last_state` computes all outputs from the final state and is the better default for short
windows. The members of an ensemble are trained together as one module with one checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from scitoolkit.core.seeds import derive_seed

if TYPE_CHECKING:
    from scitoolkit.forecasting.network_config import NetworkConfig

Head = Literal["all_steps", "last_state", "encoder_decoder"]
Memory = dict[str, tuple[Tensor, Tensor]]


class LSTMChain(nn.Module):
    """Stack of LSTM layers with skip connections, with the interface of `nn.LSTM`.

    Node i reads output i - 1; output 0 is the input. A skip (a, b) adds output a to output b,
    through a linear map if the widths differ, followed by a ReLU.

    Args:
        features: channels of an input step.
        nodes: width of every layer; 0 for the identity.
        skips: pairs (a, b) with a < b.

    Source:
        search space of stacked LSTMs, Maulik et al. 2020, arXiv:2004.10928.

    Example:
        >>> chain = LSTMChain(5, [16, 0, 32], [(0, 1), (1, 3)])
        >>> chain(torch.zeros(2, 8, 5))[0].shape
        torch.Size([2, 8, 32])
    """

    def __init__(
        self, features: int, nodes: Sequence[int], skips: Sequence[tuple[int, int]] = ()
    ) -> None:
        super().__init__()
        widths = [features]
        self.layers: nn.ModuleDict = nn.ModuleDict()
        self.maps: nn.ModuleDict = nn.ModuleDict()
        self.skips: dict[int, list[int]] = {}
        for end, width in enumerate(nodes, start=1):
            if width:
                self.layers[str(end)] = nn.LSTM(widths[-1], width, batch_first=True)
            widths.append(width or widths[-1])
        for start, end in sorted((int(a), int(b)) for a, b in skips):
            self.skips.setdefault(end, []).append(start)
            if widths[start] != widths[end]:
                self.maps[f"{start}-{end}"] = nn.Linear(widths[start], widths[end])
        self.num_nodes: int = len(nodes)
        self.width: int = widths[-1]

    def forward(self, x_BIC: Tensor, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """Return the outputs (batch, step, width) and the states of all layers.

        Args:
            x_BIC: (batch, step, feature).
            memory: states of a previous call; None for zeros.
        """
        outputs, after = [x_BIC], {}
        for end in range(1, self.num_nodes + 1):
            out = outputs[-1]
            key = str(end)
            if key in self.layers:
                out, after[key] = self.layers[key](out, memory[key] if memory else None)
            if end in self.skips:
                for start in self.skips[end]:
                    skip, name = outputs[start], f"{start}-{end}"
                    out = out + (self.maps[name](skip) if name in self.maps else skip)
                out = torch.relu(out)
            outputs.append(out)
        return outputs[-1], after


class PodLSTM(nn.Module):
    """Stacked LSTM with one of three heads.

    Args:
        features: channels of an input step.
        outputs: channels of an output step.
        inputs: number of input steps.
        leads: number of output steps.
        hidden: width of every layer.
        layers: number of stacked layers.
        head: `last_state` (all leads from the final state), `all_steps` (lead i from input step i;
            requires leads <= inputs) or `encoder_decoder` (autoregressive decoder).
        nodes: widths of an `LSTMChain` that replaces the `layers` layers of width `hidden`.
        skips: skip connections of the chain.

    Example:
        >>> PodLSTM(5, 5, inputs=8, leads=8, hidden=16)(torch.zeros(2, 8, 5)).shape
        torch.Size([2, 8, 5])
    """

    def __init__(
        self,
        features: int,
        outputs: int,
        *,
        inputs: int,
        leads: int,
        hidden: int = 16,
        layers: int = 1,
        head: Head = "last_state",
        nodes: Sequence[int] | None = None,
        skips: Sequence[tuple[int, int]] = (),
    ) -> None:
        super().__init__()
        if head == "all_steps" and leads > inputs:
            raise ValueError(f"head all_steps needs leads <= inputs, got {leads} > {inputs}")
        self.leads: int = leads
        self.outputs: int = outputs
        self.head = head

        def stack(channels: int) -> Any:
            if nodes is not None:
                return LSTMChain(channels, nodes, skips)
            return nn.LSTM(channels, hidden, layers, batch_first=True)

        self.encoder: Any = stack(features)
        width = self.encoder.width if nodes is not None else hidden
        if head == "encoder_decoder":
            self.decoder: Any = stack(outputs)
        self.readout: nn.Linear = nn.Linear(width, outputs * (leads if head == "last_state" else 1))
        # A chain without layers has the width of its input, which differs for the decoder.
        decoded = self.decoder.width if head == "encoder_decoder" and nodes is not None else width
        self.decoded_readout: nn.Linear | None = (
            nn.Linear(decoded, outputs) if decoded != width else None
        )

    def forward(self, x_BIC: Tensor) -> Tensor:
        """Return (batch, lead, output) from (batch, inputs, feature)."""
        states, memory = self.encoder(x_BIC)
        if self.head == "last_state":
            return self.readout(states[:, -1]).view(-1, self.leads, self.outputs)
        if self.head == "all_steps":
            return self.readout(states[:, -self.leads :])
        step = self.readout(states[:, -1:])
        steps = [step]
        for _ in range(self.leads - 1):
            state, memory = self.decoder(step, memory)
            step = (self.decoded_readout or self.readout)(state)
            steps.append(step)
        return torch.cat(steps, dim=1)


class NetworkEnsemble(nn.Module):
    """Networks that differ by their initialisation; outputs are stacked along a first dim."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members: nn.ModuleList = nn.ModuleList(members)

    def forward(self, x_BIC: Tensor) -> Tensor:
        """Return (member, batch, lead, output)."""
        return torch.stack([member(x_BIC) for member in self.members])


def make_ensemble(
    network: NetworkConfig,
    num_modes: int,
    inputs: int,
    leads: int,
    *,
    seasonal: bool,
    members: int,
    seed: int,
) -> NetworkEnsemble:
    """Return an ensemble of untrained networks, deterministic for a seed.

    Args:
        network: configuration of every member.
        num_modes: channels of an output step.
        inputs: number of input steps.
        leads: number of output steps.
        seasonal: whether cos and sin of the season are two additional input channels.
        members: number of networks.
        seed: of the initialisation.
    """
    chain, made = network.architecture, []
    for member in range(members):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, member))
            made.append(
                PodLSTM(
                    num_modes + (2 if seasonal else 0),
                    num_modes,
                    inputs=inputs,
                    leads=leads,
                    hidden=network.hidden,
                    layers=network.layers,
                    head=network.head,
                    nodes=chain.nodes if chain else None,
                    skips=chain.skips if chain else (),
                )
            )
    return NetworkEnsemble(list[nn.Module](made))


def fit_in_memory(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    lr: float = 3e-3,
    batch: int = 64,
    seed: int = 0,
) -> nn.Module:
    """Fit a small network to tensors with Adam, without a run directory (validation folds).

    Args:
        network: trained in place.
        x: inputs (sample, ...).
        y: targets (sample, ...).
        epochs: passes over the samples.
        lr: learning rate.
        batch: batch size.
        seed: of the shuffling.

    Returns:
        The network in evaluation mode.
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            loss = ((network(x[rows]) - y[rows]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()
