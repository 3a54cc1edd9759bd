"""The stages of transport on meshes: what differs from other surrogates in the life of `surrogate`.

Data are a `MeshFile`, samples are trajectories on all of its meshes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from scitoolkit.core.data_facts import DataFacts
from scitoolkit.core.devices import placed
from scitoolkit.core.log import get_logger
from scitoolkit.core.results import Lines, Multiples, Results, Table, Verdict
from scitoolkit.core.traced import TracedFunction
from scitoolkit.graphs import mesh_baselines, mesh_traced, sharing
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.graphs.mesh_data import MeshFile, MeshSet, read_meshes
from scitoolkit.graphs.mesh_files import MeshFiles
from scitoolkit.graphs.mesh_model import MeshTransport
from scitoolkit.graphs.mesh_pictures import final_maps
from scitoolkit.graphs.mesh_task import FlowLoader, MeshDynamics
from scitoolkit.graphs.part import GraphPart
from scitoolkit.io.familiar import UsualValues, require_familiar
from scitoolkit.surrogate import Opened, Stages, Trained
from scitoolkit.surrogate.ensemble import members_of
from scitoolkit.surrogate.sections import against_steps, curves
from scitoolkit.surrogate.stages import Rows
from scitoolkit.training.processes import on_rank_zero
from scitoolkit.training.ranks.communicator import SingleProcess, join

log = get_logger(__name__)
NODE_INPUTS, EDGE_INPUTS = 3, 3  # velocity and boundary flag; offset and length


class MeshStages(MeshFiles, Stages):
    """Stages of a job that trains on the first trajectories and is scored on the last ones."""

    start_settings = ("model.hidden", "model.rounds", "model.stages")
    remeasured = ("meshes", "speeds")

    def measure(self, config: MeshConfig, data: MeshFile, rows: Rows) -> Mapping[str, Any]:
        """Return the names of the training meshes, for reports, and their velocities' moments."""
        return {"meshes": list(data.geometry.names), "speeds": data.speeds(np.array(rows).tolist())}

    def build(self, config: MeshConfig, facts: Any, measured: Any, seed: int) -> MeshTransport:
        """Return an untrained network."""
        settings = config.model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            sizes = settings.hidden, settings.rounds, settings.stages
            model = MeshTransport(NODE_INPUTS, EDGE_INPUTS, *sizes)
        if "speeds" in (measured or {}):
            mean, deviation = measured["speeds"]
            model.speeds = mean, deviation
        return model

    def task(self, config: MeshConfig, opened: Opened, model: MeshTransport) -> MeshDynamics:
        """Return the errors of short rollouts on this process's part of the meshes."""
        ranks, graph = join(), opened.data.geometry.graph
        owner = on_rank_zero(
            lambda: sharing.choose_owner(graph, config.graph, ranks.size, config.seed)
        )
        part = sharing.share(graph, config.graph, ranks, owner)
        log.info("%d local nodes of %d, %s", len(part.nodes), part.num_nodes, part.grid)
        return MeshDynamics(
            model,
            opened.data,
            part,
            unrolled=config.model.unrolled,
            seed=config.training.seed,
            scaled_by=np.array(opened.parts["train"]),
        )

    def loader(
        self, config: MeshConfig, opened: Opened, part: str, model: MeshTransport
    ) -> FlowLoader:
        """Return batches of trajectories, in random order for training."""
        seed = config.training.seed if part == "train" else None
        return FlowLoader(np.array(opened.parts[part]), config.training.batch_size, seed)

    def describe(self, opened: Opened) -> Mapping[str, Any]:
        """Return the nodes of each mesh and the number of times."""
        shape = opened.data.geometry
        nodes = np.bincount(shape.mesh).tolist()
        return {"meshes": dict(zip(shape.names, nodes, strict=True)), "times": shape.num_times}

    def report(
        self, trained: Trained, data: MeshFile, rows: Rows | None
    ) -> tuple[Results, xr.Dataset | None]:
        """Roll out on each mesh of the file, including unseen ones; draw the worst."""
        config: MeshConfig = trained.config
        if rows is not None and not len(rows):  # a record from before it held the split
            rows = self.split(config, data)["test"]
        seen = () if rows is None else trained.folder.measured()["meshes"]
        return _scored(trained.model, data, rows, seen)

    def evaluate(
        self, config: MeshConfig, model: MeshTransport, data: MeshFile, rows: Rows | None
    ) -> Results:
        """Roll out on each mesh of the file."""
        return _scored(model, data, rows, ())[0]

    def errors(
        self, config: MeshConfig, model: MeshTransport, data: MeshFile, rows: Rows | None
    ) -> xr.Dataset:
        """Return the errors of rollouts on the meshes of the training, each trajectory a group."""
        flows = np.arange(data.geometry.num_flows) if rows is None else np.array(rows)
        names, trained = data.geometry.names, config.data.meshes
        errors = []
        for name in [n for n in names if trained is None or n in trained] or names:
            meshes = read_meshes(data.path, [name])
            truth = meshes.tracer[flows, 1:].swapaxes(0, 1)
            errors.append(_dynamics(model, meshes).rollout(flows, len(truth)).numpy() - truth)
        tracer = (("step", "group", "point"), np.concatenate(errors, axis=2))
        return xr.Dataset({"tracer": tracer}, {"step": np.arange(1, len(tracer[1]) + 1)})

    def predict(
        self, config: MeshConfig, model: MeshTransport, data: MeshFile, output: Path
    ) -> xr.Dataset | None:
        """Roll out every trajectory from its initial state; nodes of all meshes in turn.

        With several processes, each advances its part of the meshes; rank 0 gathers and returns.
        """
        ranks, shape = join(), data.geometry
        settings = config.graph.model_copy(update={"owner": None})
        owner = on_rank_zero(
            lambda: sharing.choose_owner(shape.graph, settings, ranks.size, config.seed)
        )
        part = GraphPart(shape.graph, owner, ProcessGrid(ranks.size), ranks)
        task = MeshDynamics(placed(model), data, part)
        _warn_if_fast(task, str(data.path))
        steps, flows = shape.num_times - 1, np.arange(shape.num_flows)
        log.info("%d local nodes of %d", len(task.part.nodes), task.part.num_nodes)
        states = task.whole_rollout(flows, steps)
        if states is None:
            return None
        names = np.array(shape.names)[shape.mesh]
        dims, units = ("step", "trajectory", "node"), {"units": "1"}
        return xr.Dataset(
            {"tracer": (dims, states.numpy(), units)},
            coords={"step": np.arange(1, steps + 1), "mesh": ("node", names)},
            attrs={"title": f"rollouts on the meshes of {data.path.name}"},
        )

    def traced(
        self, config: MeshConfig, facts: DataFacts | None, model: MeshTransport
    ) -> Sequence[TracedFunction]:
        """Return coefficients and step of the scheme; see `mesh_traced`."""
        return mesh_traced.traced(model.cpu(), config)


def _scored(
    model: MeshTransport, data: MeshFile, rows: Rows | None, seen: Sequence[str]
) -> tuple[Results, xr.Dataset]:
    """Return the scores on each mesh, and the last states on the worst one."""
    flows = np.arange(data.geometry.num_flows) if rows is None else np.array(rows)
    errors, last = {}, {}
    for name in data.geometry.names:
        meshes = read_meshes(data.path, [name])
        task = _dynamics(model, meshes)
        _warn_if_fast(task, f"{data.path}:{name}")
        states = _rollouts(task, meshes, flows)
        errors[name] = _errors(states, meshes, flows)
        # Only the last step of the first trajectory is drawn.
        truth = meshes.tracer[flows[0], -1]
        last[name] = {"truth": truth, **{m: values[-1, 0] for m, values in states.items()}}
    results = _results(errors, seen, data.path.name)
    worst = _worst(errors)
    rival = results.verdict.rival_name if results.verdict else "interpolation"
    shape = read_meshes(data.path, [worst]).geometry
    maps, fields = final_maps(shape, last[worst], rival, data.geometry.num_times - 1)
    results.figures.insert(0, maps)
    return results, fields


def _dynamics(model: MeshTransport, meshes: MeshSet) -> MeshDynamics:
    """Return the task of whole meshes in this process alone."""
    owner = np.zeros(meshes.graph.num_nodes, np.int64)
    part = GraphPart(meshes.graph, owner, ProcessGrid(1), SingleProcess())
    return MeshDynamics(model, meshes, part)


def _warn_if_fast(task: MeshDynamics, where: str) -> None:
    """Warn of velocities far from those of the training, as those in another unit are."""
    first = members_of(task.model)[0]
    if isinstance(first, MeshTransport) and first.speeds is not None:
        name = "velocity in mean edge lengths per step"
        usual = {name: UsualValues(*first.speeds)}
        require_familiar({name: task.velocity.numpy()}, usual, {}, where)


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


def _results(
    errors_by_mesh: dict[str, dict[str, np.ndarray]], seen: Sequence[str], file: str
) -> Results:
    rows: list[list[Any]] = []
    metrics: dict[str, Any] = {}
    panels: list[Lines] = []
    for mesh, errors in errors_by_mesh.items():
        label = f"{mesh} ({'seen' if mesh in seen else 'unseen'})" if seen else mesh
        rows.append([label, *(float(e.mean()) for e in errors.values())])
        metrics[f"error_ratio_{mesh}"] = _ratio(errors)
        series = curves(errors, baselines=[*errors.keys() - {"surrogate"}])
        panels.append(against_steps(label, "RMSE", series, log_y=True))
    worst = _worst(errors_by_mesh)
    metrics["rollout_error_ratio"] = metrics[f"error_ratio_{worst}"]
    return Results(
        title=f"Transport of a tracer on {len(errors_by_mesh)} meshes ({file})",
        verdict=Verdict.among(
            {name: float(errors.mean()) for name, errors in errors_by_mesh[worst].items()},
            "surrogate",
            f"rollout RMSE on {worst}, the worst of {len(errors_by_mesh)} meshes",
        ),
        summary=["Errors are over all nodes and test trajectories, from the first state alone."],
        metrics=metrics,
        tables=[
            Table(
                title="RMSE, mean over the steps of the rollout",
                columns=["mesh", *next(iter(errors_by_mesh.values()))],
                rows=rows,
            )
        ],
        figures=[Multiples(title="Error of the rollouts on each mesh", panels=panels)],
    )
