"""Training, evaluation and rollouts of transport on finite-element meshes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from scitoolkit.core.devices import placed
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import FIELDS_NAME, Lines, Multiples, Results, Series, Table, Verdict
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.traced import TracedFunction
from scitoolkit.graphs import mesh_baselines, mesh_traced, sharing
from scitoolkit.graphs.facts import mesh_facts, require_trained_mesh
from scitoolkit.graphs.grid import Grid
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.graphs.mesh_data import MeshFile, MeshSet, read_meshes
from scitoolkit.graphs.mesh_model import MeshTransport
from scitoolkit.graphs.mesh_pictures import final_maps
from scitoolkit.graphs.mesh_task import FlowLoader, MeshDynamics
from scitoolkit.graphs.part import GraphPart
from scitoolkit.io.fields import write_fields
from scitoolkit.training import Trainer, best_weights, current_rank
from scitoolkit.training.processes import on_rank_zero
from scitoolkit.training.ranks.communicator import SingleProcess, join

log: Logger = get_logger(__name__)
NODE_INPUTS, EDGE_INPUTS = 3, 3  # velocity and boundary flag; offset and length


def check(config: MeshConfig) -> Mapping[str, Any]:
    """Read and partition the meshes and run one batch; writes nothing."""
    meshes, flows = _data(config)
    task = _task(config, meshes, flows["train"])
    loss, _ = task.loss(next(iter(FlowLoader(flows["train"], 1))))
    shape = meshes.geometry
    return {
        "meshes": dict(zip(shape.names, np.bincount(shape.mesh).tolist(), strict=True)),
        "trajectories": {name: len(numbers) for name, numbers in flows.items()},
        "times": shape.num_times,
        "parameters": sum(p.numel() for p in task.model.parameters()),
        "algorithm": str(task.part.grid),
        "first_loss": float(loss.detach()),
    }


def train(config: MeshConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Train on all processes; save the weights with the lowest validation error in `model/`."""
    meshes, flows = _data(config)
    task = _task(config, meshes, flows["train"])
    log.info("%d local nodes of %d", len(task.part.nodes), task.part.num_nodes)
    settings = config.training
    Trainer(task, settings, run=run).fit(
        FlowLoader(flows["train"], settings.batch_size, settings.seed),
        FlowLoader(flows["validation"], settings.batch_size),
        resume=resume,
    )
    if current_rank() != 0:
        return
    model_folder = ModelFolder.create(run)
    model_folder.save_weights(best_weights(run.checkpoints))
    model_folder.save_facts(mesh_facts(config.data.path, meshes.geometry.names))
    record = {"meshes": list(meshes.geometry.names), "processes": task.part.ranks.size}
    model_folder.finish(run, record)


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Roll out the test trajectories on each mesh of the file, including unseen ones.

    Writes results.json and model/metrics.json to a run directory; with `data` nothing is written
    and all trajectories of that file are rolled out.
    """
    folder = ModelFolder(directory)
    config, record = folder.config(MeshConfig), folder.record()
    path = config.data.path if data is None else data
    whole = MeshFile(path)
    require_trained_mesh(folder.facts(), mesh_facts(path, whole.geometry.names), str(path))
    count = whole.geometry.num_flows
    flows = np.arange(count - config.split.test if data is None else 0, count)
    errors, last = {}, {}
    for name in whole.geometry.names:
        meshes = read_meshes(path, [name])
        states = _rollouts(_on_one_process(config, folder, meshes), meshes, flows)
        errors[name] = _errors(states, meshes, flows)
        # Only the last step of the first trajectory is drawn.
        truth = meshes.tracer[flows[0], -1]
        last[name] = {"truth": truth, **{m: values[-1, 0] for m, values in states.items()}}
    results = _results(errors, record["meshes"] if data is None else [], Path(path).name)
    worst = _worst(errors)
    rival = results.verdict.rival_name if results.verdict else "interpolation"
    shape = read_meshes(path, [worst]).geometry
    maps, fields = final_maps(shape, last[worst], rival, whole.geometry.num_times - 1)
    results.figures.insert(0, maps)
    if folder.write_results(results, data):
        write_fields(fields, folder.directory / FIELDS_NAME)
    return results


def predict(directory: Path, source: Path, output: Path) -> None:
    """Roll out every trajectory of a file from its initial state; nodes of all meshes in turn.

    With several processes, each advances its part of the meshes; rank 0 gathers and writes.
    """
    folder = ModelFolder(directory)
    config = folder.config(MeshConfig)
    meshes = MeshFile(source)
    require_trained_mesh(folder.facts(), mesh_facts(source, meshes.geometry.names), str(source))
    shape = meshes.geometry
    task = MeshDynamics(_trained(config, folder), meshes, _rollout_part(config, meshes))
    steps, flows = shape.num_times - 1, np.arange(shape.num_flows)
    log.info("%d local nodes of %d", len(task.part.nodes), task.part.num_nodes)
    states = task.whole_rollout(flows, steps)
    if states is not None:
        names = np.array(shape.names)[shape.mesh]
        dims, units = ("step", "trajectory", "node"), {"units": "1"}
        dataset = xr.Dataset(
            {"tracer": (dims, states.numpy(), units)},
            coords={"step": np.arange(1, steps + 1), "mesh": ("node", names)},
            attrs={"title": f"rollouts on the meshes of {Path(source).name}"},
        )
        write_fields(dataset, output)


def _rollout_part(config: MeshConfig, meshes: MeshFile) -> GraphPart:
    """Return this process's part of meshes, which may differ from the training meshes."""
    ranks, graph = join(), meshes.geometry.graph
    settings = config.graph.model_copy(update={"owner": None})
    owner = on_rank_zero(lambda: sharing.choose_owner(graph, settings, ranks.size, config.seed))
    return GraphPart(graph, owner, Grid(ranks.size), ranks)


def _data(config: MeshConfig) -> tuple[MeshFile, dict[str, np.ndarray]]:
    path = config.data.path
    meshes = MeshFile(path, config.data.meshes)
    require_trained_mesh(None, mesh_facts(path, meshes.geometry.names), str(path))
    count = meshes.geometry.num_flows
    test, validation = (
        count - config.split.test,
        count - config.split.test - config.split.validation,
    )
    if validation < 1:
        raise ConfigError(
            f"{count} trajectories leave none to train on",
            where="split.validation, split.test",
            allowed=f"together at most {count - 1}",
        )
    cuts = {"train": (0, validation), "validation": (validation, test), "test": (test, count)}
    return meshes, {name: np.arange(*cut) for name, cut in cuts.items()}


def _model(config: MeshConfig) -> MeshTransport:
    torch.manual_seed(config.seed)
    m = config.model
    return MeshTransport(NODE_INPUTS, EDGE_INPUTS, m.hidden, m.rounds, m.stages)


def _task(config: MeshConfig, meshes: MeshFile, train: np.ndarray) -> MeshDynamics:
    ranks, graph = join(), meshes.geometry.graph
    owner = on_rank_zero(lambda: sharing.choose_owner(graph, config.graph, ranks.size, config.seed))
    part = sharing.share(graph, config.graph, ranks, owner)
    return MeshDynamics(
        _model(config),
        meshes,
        part,
        unrolled=config.model.unrolled,
        seed=config.training.seed,
        scaled_by=train,
    )


def traced(directory: Path) -> Sequence[TracedFunction]:
    """Return the functions of a trained scheme; see `mesh_traced`."""
    folder = ModelFolder(directory)
    config = folder.config(MeshConfig)
    return mesh_traced.traced(_trained(config, folder).cpu(), config)


def _trained(config: MeshConfig, folder: ModelFolder) -> MeshTransport:
    model = _model(config).eval()
    model.load_state_dict(folder.load_weights())
    return placed(model)


def _on_one_process(config: MeshConfig, folder: ModelFolder, meshes: MeshSet) -> MeshDynamics:
    """Return the trained network on some meshes, on one process."""
    model = _trained(config, folder)
    owner = np.zeros(meshes.graph.num_nodes, np.int64)
    return MeshDynamics(model, meshes, GraphPart(meshes.graph, owner, Grid(1), SingleProcess()))


def _rollouts(task: MeshDynamics, meshes: MeshSet, flows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the states (steps, K, N) of every method."""
    steps = meshes.tracer.shape[1] - 1
    return {
        "surrogate": task.rollout(flows, steps).numpy(),
        "persistence": mesh_baselines.persistence(meshes, flows, steps),
        "interpolation": mesh_baselines.interpolation(meshes, flows, steps),
    }


def _errors(
    states: Mapping[str, np.ndarray], meshes: MeshSet, flows: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the RMSE at each step over nodes and trajectories, by method."""
    truth = meshes.tracer[flows, 1:].swapaxes(0, 1)
    return {name: np.sqrt(((s - truth) ** 2).mean((1, 2))) for name, s in states.items()}


def _ratio(errors: Mapping[str, np.ndarray]) -> float:
    """Return the surrogate's mean error over that of the best baseline at each step."""
    best = np.minimum(errors["persistence"], errors["interpolation"])
    return float(errors["surrogate"].mean() / best.mean())


def _worst(errors: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Return the mesh with the largest ratio, which the verdict is about."""
    return max(errors, key=lambda mesh: _ratio(errors[mesh]))


def _results(found: dict[str, dict[str, np.ndarray]], seen: list[str], file: str) -> Results:
    rows: list[list[Any]] = []
    metrics: dict[str, Any] = {}
    panels: list[Lines] = []
    for mesh, errors in found.items():
        label = f"{mesh} ({'seen' if mesh in seen else 'unseen'})" if seen else mesh
        rows.append([label, *(float(e.mean()) for e in errors.values())])
        metrics[f"error_ratio_{mesh}"] = _ratio(errors)
        x = [float(s) for s in range(1, len(errors["surrogate"]) + 1)]
        lines = [
            Series(label=n, y=e.tolist(), role="main" if n == "surrogate" else "baseline")
            for n, e in errors.items()
        ]
        panels.append(
            Lines(title=label, x=x, x_label="step", y_label="RMSE", series=lines, log_y=True)
        )
    worst = _worst(found)
    metrics["rollout_error_ratio"] = metrics[f"error_ratio_{worst}"]
    return Results(
        title=f"Transport of a tracer on {len(found)} meshes ({file})",
        verdict=Verdict.among(
            {name: float(errors.mean()) for name, errors in found[worst].items()},
            "surrogate",
            f"rollout RMSE on {worst}, the worst of {len(found)} meshes",
        ),
        summary=["Errors are over all nodes and test trajectories, from the first state alone."],
        metrics=metrics,
        tables=[
            Table(
                title="RMSE, mean over the steps of the rollout",
                columns=["mesh", *next(iter(found.values()))],
                rows=rows,
            )
        ],
        figures=[Multiples(title="Error of the rollouts on each mesh", panels=panels)],
    )
