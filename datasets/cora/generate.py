"""Make the file from Planetoid's, or check it: `python generate.py --source FOLDER --output .`

`--source` is a folder in which torch-geometric's `Planetoid` keeps (or into which it fetches) the
raw files; `--name CiteSeer` and `--name PubMed` make files of the same layout.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scitoolkit.core.errors import DataError
from scitoolkit.graphs.graph import Graph, from_data, read_graph, write_graph

NAME = "cora.npz"
EXPECTED = {"nodes": 2708, "edges": 10556, "features": 1433, "classes": 7, "train": 140}


def make(source: Path, output: Path, name: str) -> Path:
    """Read `name` by torch-geometric and write it into the folder `output`."""
    from torch_geometric.datasets import Planetoid

    path = Path(output) / f"{name.lower()}.npz"
    write_graph(from_data(Planetoid(str(source), name)[0]), path)
    return path


def check(graph: Graph, where: str) -> None:
    """Raise DataError unless the graph has Cora's sizes."""
    found = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.features.shape[1],
        "classes": graph.num_classes,
        "train": len(graph.parts["train"]),
    }
    if found != EXPECTED:
        raise DataError(f"not Cora: {found}", where=where, allowed=str(EXPECTED))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, help="folder of Planetoid's raw files")
    parser.add_argument("--output", type=Path, default=Path())
    parser.add_argument("--name", default="Cora")
    parser.add_argument("--check", type=Path, help="a file to check instead")
    arguments = parser.parse_args()
    if arguments.check:
        check(read_graph(arguments.check), str(arguments.check))
        print(f"{arguments.check}: as expected")
        return
    if arguments.source is None:
        parser.error("--source or --check is needed")
    print(make(arguments.source, arguments.output, arguments.name))


if __name__ == "__main__":
    main()
