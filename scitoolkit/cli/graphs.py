"""`scitoolkit graphs`: communication costs of distributed algorithms, and partitioned graphs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options


class NodeTarget(StrEnum):
    """Type of the targets of the nodes."""

    classes = "classes"
    labels = "labels"
    values = "values"


app: typer.Typer = typer.Typer(
    help="Plan distributed full-graph training, and partition graphs.", cls=options.CommandGroup
)


@app.command("plan")
def plan(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A graph in an .npz file.")],
    ranks: Annotated[int, typer.Option("--ranks", min=1, help="Processes to plan for.")] = 4,
    width: Annotated[int, typer.Option("--width", min=1, help="Features per node.")] = 64,
    partition: Annotated[str, typer.Option("--partition", help="metis, random, block.")] = "metis",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of a random partition.")] = 0,
    latency_us: Annotated[
        float, typer.Option("--latency-us", help="Latency of a message in microseconds.")
    ] = 20.0,
    gigabytes: Annotated[
        float, typer.Option("--gb-per-s", help="Network bandwidth of a rank in GB/s.")
    ] = 1.0,
    as_json: options.Json = False,
) -> None:
    """Predict communication, memory and time of each algorithm, and recommend one."""
    from scitoolkit.graphs.config import PartitionConfig
    from scitoolkit.graphs.graph import read_graph
    from scitoolkit.graphs.performance import Machine, measured_rate, predicted_seconds
    from scitoolkit.graphs.sharing import choose_owner, forecasts

    graph = read_graph(path)
    config = PartitionConfig.model_validate({"partition": partition})
    owner = choose_owner(graph, config, ranks, seed)
    machine = Machine(latency_us * 1e-6, 4e-9 / gigabytes, measured_rate())
    rows: list[dict[str, Any]] = [
        {
            "algorithm": str(forecast.grid),
            "words": int(forecast.words.max()),
            "messages": int(forecast.messages.max()),
            "bytes": int(forecast.bytes.max()),
            "imbalance": round(forecast.imbalance, 3),
            "seconds": predicted_seconds(forecast, (width,), machine),
        }
        for forecast in forecasts(graph, owner, ranks, (width,))
    ]
    rows.sort(key=lambda row: row["seconds"])
    answer: dict[str, Any] = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "ranks": ranks,
        "width": width,
        "choice": rows[0]["algorithm"],
        "algorithms": rows,
    }
    if as_json:
        options.print_json(answer)
        return
    print(f"{path}: {graph.num_nodes} nodes, {graph.num_edges} edges, {ranks} ranks")
    print(f"GCN product of width {width} and its gradient; maxima over the ranks.")
    print(f"{'algorithm':<28}{'words':>12}{'messages':>10}{'MiB':>9}{'imbalance':>11}{'ms':>9}")
    for row in rows:
        print(
            f"{row['algorithm']:<28}{row['words']:>12}{row['messages']:>10}"
            f"{row['bytes'] / 2**20:>9.1f}{row['imbalance']:>11.2f}{1e3 * row['seconds']:>9.2f}"
        )
    print(
        f"choice: {rows[0]['algorithm']} (assumed network: {latency_us:g} us, {gigabytes:g} GB/s; "
        "arithmetic at the measured rate of this machine)"
    )


@app.command("partition")
def partition(
    edges: Annotated[
        Path,
        typer.Argument(metavar="EDGES", help="npz, HDF5, npy, CSV, Parquet, or a folder of npy."),
    ],
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to create.")],
    parts: Annotated[
        int, typer.Option("--parts", min=1, help="Number of parts: processes to train on.")
    ] = 4,
    nodes: Annotated[
        Path | None, typer.Option("--nodes", help="Features, labels and splits: npz or HDF5.")
    ] = None,
    num_nodes: Annotated[
        int | None,
        typer.Option("--num-nodes", min=1, help="Number of nodes, if no file contains it."),
    ] = None,
    method: Annotated[
        str, typer.Option("--method", help="auto, metis, clusters, greedy, block.")
    ] = "auto",
    owner: Annotated[
        Path | None,
        typer.Option("--owner", help="Instead of --method: npy file with the part of each node."),
    ] = None,
    target: Annotated[
        NodeTarget, typer.Option("--target", help="Type of `y`: classes, labels, values.")
    ] = NodeTarget.classes,
    memory_mib: Annotated[
        int, typer.Option("--memory-mib", min=32, help="Memory limit in MiB.")
    ] = 1024,
    node_weight: Annotated[
        int,
        typer.Option("--node-weight", min=1, help="Ends of edges that a node counts for."),
    ] = 1,
    as_json: options.Json = False,
) -> None:
    """Partition a graph on disk in bounded memory; an interrupted call can be repeated."""
    from scitoolkit.graphs.partitioner import partition_edges

    header = partition_edges(
        edges,
        out,
        parts,
        nodes=nodes,
        num_nodes=num_nodes,
        method=method,
        owner=owner,
        memory=memory_mib << 20,
        target=target.value,
        node_weight=node_weight,
    ).header
    if as_json:
        options.print_json({**header, "path": str(out)})
        return
    total = max(1, header["num_edges"])
    print(f"{out}: {header['num_nodes']} nodes, {header['num_edges']} edges, {parts} parts")
    print(
        f"{header['self_loops']} self-loops and {header['duplicate_edges']} duplicate edges "
        f"(retained), {header['isolated_nodes']} isolated nodes"
    )
    print(
        f"edges between parts: {header['cut'] / total:.2%} ({header['method']}), "
        f"{header['cut_of_blocks'] / total:.2%} (contiguous blocks), "
        f"{header['random_cut'] / total:.2%} (random)"
    )
    print(f"{'part':<8}{'nodes':>12}{'edges':>14}{'halo':>12}")
    for number, part in enumerate(header["parts"]):
        print(f"{number:<8}{part['nodes']:>12}{part['edges']:>14}{part['halo']:>12}")
    print(f"next: train with data.path={out} and --nproc {parts}")
