"""A task for tests of memory: the mean square of what a model returns."""

from __future__ import annotations


class Squares:
    """Mean square of what a model returns; fulfils `contracts.Task`."""

    def __init__(self, model):
        self.model = model

    def loss(self, batch):
        return self.model(batch["x"]).square().mean(), {}

    def metrics(self, batch):
        return {"loss": self.loss(batch)[0]}

    def batch_size(self, batch):
        return len(batch["x"])
