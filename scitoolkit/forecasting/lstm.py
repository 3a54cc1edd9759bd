"""POD-LSTM: stacked LSTMs from a window of mode coefficients to the next ones.

An `all_steps` head maps input step i to lead i, so its first outputs have seen one input only;
`last_state` reads all outputs off the final state and is the better default on short windows.
Members of an ensemble are trained side by side as one module, so that one checkpoint holds all.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Head = Literal["all_steps", "last_state", "encoder_decoder"]


class PodLSTM(nn.Module):
    """One stacked LSTM with one of three heads.

    Args:
        features: channels of an input step.
        outputs: channels of an output step.
        inputs: input steps.
        leads: output steps.
        hidden: width of every layer.
        layers: number of stacked layers.
        head: how outputs are read off; `all_steps` needs leads <= inputs.

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
    ) -> None:
        super().__init__()
        if head == "all_steps" and leads > inputs:
            raise ValueError(f"head all_steps needs leads <= inputs, got {leads} > {inputs}")
        self.leads, self.outputs, self.head = leads, outputs, head
        self.encoder = nn.LSTM(features, hidden, layers, batch_first=True)
        if head == "encoder_decoder":
            self.decoder = nn.LSTM(outputs, hidden, layers, batch_first=True)
        self.readout = nn.Linear(hidden, outputs * (leads if head == "last_state" else 1))

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
            step = self.readout(state)
            steps.append(step)
        return torch.cat(steps, dim=1)


class Ensemble(nn.Module):
    """Members that differ by their initialisation; `forward` stacks their outputs first."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x_BIC: Tensor) -> Tensor:
        """Return (member, batch, lead, output)."""
        return torch.stack([member(x_BIC) for member in self.members])


def fit_in_memory(
    network: nn.Module, x: Tensor, y: Tensor, *, epochs: int, lr: float = 3e-3, batch: int = 64,
    seed: int = 0,
) -> nn.Module:  # fmt: skip
    """Fit a tiny network to tensors with Adam: for validation folds, where no run is kept."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(batch):
            loss = ((network(x[rows]) - y[rows]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network.eval()
