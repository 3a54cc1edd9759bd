"""Seconds per training epoch on one or more processes: `python -m _graph_epochs OUT EPOCHS`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from _graph_data import rmat

from scitoolkit.core.devices import choose_device
from scitoolkit.graphs.config import PartitionConfig
from scitoolkit.graphs.models import GCN
from scitoolkit.graphs.sharing import choose_owner, share
from scitoolkit.graphs.strategy import GraphTrainingConfig
from scitoolkit.graphs.task import NodeClassification, PartLoader
from scitoolkit.training.launch import leave
from scitoolkit.training.processes import process_group
from scitoolkit.training.ranks.communicator import join

SCALE, EDGES, WIDTHS = 17, 2_000_000, (128, 64, 16)


def main() -> None:
    out, epochs = Path(sys.argv[1]), int(sys.argv[2])
    config = GraphTrainingConfig()
    torch.set_num_threads(1)
    with process_group(config):
        ranks = join()
        strategy = config.strategy_on(ranks.size).build(choose_device(config.device))
        graph = rmat(SCALE, EDGES, WIDTHS[0], WIDTHS[2])
        sharing = PartitionConfig()
        part = share(graph, sharing, ranks, choose_owner(graph, sharing, ranks.size))
        torch.manual_seed(0)
        model = GCN(hidden=WIDTHS[1], dropout=0.0).build(WIDTHS[0], WIDTHS[2])
        task = NodeClassification(strategy.prepare(model, 0), part)
        x = torch.from_numpy(graph.features[part.nodes.numpy()])
        batch = next(iter(PartLoader(x, part.nodes, graph.labels, graph.parts["train"])))
        optimizer = torch.optim.Adam(model.parameters())
        named = list(model.named_parameters())
        strategy.attach(named, config.exchange)
        seconds = []
        for _ in range(epochs + 1):
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss, _ = task.loss(batch)
            loss.backward(torch.tensor(len(batch["label"]) / graph.num_nodes))
            strategy.reduce_gradients(failed=False)
            optimizer.step()
            seconds.append(time.perf_counter() - begin)
        total = strategy.sum([float(loss.detach()) * len(batch["label"]) / graph.num_nodes])[0]
        if ranks.rank == 0:
            record = {"seconds": float(np.median(seconds[1:])), "loss": total}
            out.write_text(json.dumps(record))


if __name__ == "__main__":
    main()
    leave(0)
