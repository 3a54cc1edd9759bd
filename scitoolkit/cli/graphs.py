"""`scitoolkit graphs plan`: what each distributed algorithm would move, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options

app = typer.Typer(help="Distributed full-graph training: look before you launch.")


@app.callback()
def _group() -> None:
    """Keep `plan` a subcommand while it is the only one."""


@app.command("plan")
def plan(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A graph in an .npz file.")],
    ranks: Annotated[int, typer.Option("--ranks", min=1, help="Processes to plan for.")] = 4,
    width: Annotated[int, typer.Option("--width", min=1, help="Columns of a product.")] = 64,
    partition: Annotated[str, typer.Option("--partition", help="metis, random, block.")] = "metis",
    latency_us: Annotated[float, typer.Option("--latency-us", help="Of a message.")] = 20.0,
    gigabytes: Annotated[float, typer.Option("--gb-per-s", help="Of a rank's network.")] = 1.0,
    as_json: options.Json = False,
) -> None:
    """Predict words, messages, memory and seconds of each algorithm, and pick one."""
    from scitoolkit.graphs.config import PartitionConfig
    from scitoolkit.graphs.graph import read_graph
    from scitoolkit.graphs.performance import Machine, measured_rate, predicted_seconds
    from scitoolkit.graphs.sharing import choose_owner, forecasts

    graph = read_graph(path)
    config = PartitionConfig.model_validate({"partition": partition})
    owner = choose_owner(graph, config, ranks)
    machine = Machine(latency_us * 1e-6, 4e-9 / gigabytes, measured_rate())
    rows: list[dict[str, Any]] = [
        {
            "algorithm": str(found.grid),
            "words": int(found.words.max()),
            "messages": int(found.messages.max()),
            "bytes": int(found.bytes.max()),
            "imbalance": round(found.imbalance, 3),
            "seconds": predicted_seconds(found, (width,), machine),
        }
        for found in forecasts(graph, owner, ranks, (width,))
    ]
    rows.sort(key=lambda row: row["seconds"])
    answer: dict[str, Any] = {
        "nodes": graph.num_nodes, "edges": graph.num_edges, "ranks": ranks, "width": width,
        "choice": rows[0]["algorithm"], "algorithms": rows,
    }  # fmt: skip
    if as_json:
        options.print_json(answer)
        return
    print(f"{path}: {graph.num_nodes} nodes, {graph.num_edges} edges, {ranks} ranks")
    print("A GCN product of that width and its gradient; each figure is the busiest rank's.")
    print(f"{'algorithm':<28}{'words':>12}{'messages':>10}{'MiB':>9}{'imbalance':>11}{'ms':>9}")
    for row in rows:
        print(
            f"{row['algorithm']:<28}{row['words']:>12}{row['messages']:>10}"
            f"{row['bytes'] / 2**20:>9.1f}{row['imbalance']:>11.2f}{1e3 * row['seconds']:>9.2f}"
        )
    print(
        f"choice: {rows[0]['algorithm']} (network taken as {latency_us:g} us, {gigabytes:g} GB/s; "
        "work at this machine's measured rate)"
    )
