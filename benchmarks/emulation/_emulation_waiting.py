"""Share of a training step spent waiting for data.

    python _emulation_waiting.py ours|dataloader WORKFLOW STEPS

`dataloader` is common practice: torch's DataLoader over a data set that opens the files with h5py
and reads one window at a time. Steps are measured in CPU time, so that the load of the machine does
not hide the waiting.
"""

from __future__ import annotations

import json
import sys
import time

import h5py
import numpy as np
import torch

from scitoolkit import api
from scitoolkit.emulation.stages import prepare
from scitoolkit.io.fields import expand_paths


class Windows(torch.utils.data.Dataset):
    """Windows of `span` frames within one file."""

    def __init__(self, paths, names, span):
        self.files = [h5py.File(p) for p in paths]
        self.names, self.span = names, span
        self.index = [
            (f, i)
            for f, file in enumerate(self.files)
            for i in range(len(file[names[0]]) - span + 1)
        ]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, item):
        file, start = self.index[item]
        return {n: self.files[file][n][start : start + self.span] for n in self.names}


def main(kind: str, workflow: str, steps: int) -> dict:
    _, config = api.load(workflow)
    job = prepare(config)
    batches = job.loaders["train"]
    if kind == "dataloader":
        names = list(job.opened.data.layout.variables)
        data = Windows(expand_paths(config.data.path), names, 1 + config.rollout.steps)
        batches = torch.utils.data.DataLoader(data, config.training.batch_size, shuffle=True)
    optimizer = config.training.optimizer.build(job.model.parameters())
    waited = worked = 0.0
    done = 0
    while done < steps:
        iterator = iter(batches)
        while done < steps:
            begin = time.perf_counter()
            batch = next(iterator, None)
            waited += time.perf_counter() - begin
            if batch is None:
                break
            begin = time.process_time()
            optimizer.zero_grad()
            loss, _ = job.task.loss(batch)
            loss.backward()
            optimizer.step()
            worked += time.process_time() - begin
            done += 1
    if not np.isfinite(loss.item()):
        raise RuntimeError("the loss is not finite")
    return {"waited": waited, "worked": worked, "share": waited / (waited + worked)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
