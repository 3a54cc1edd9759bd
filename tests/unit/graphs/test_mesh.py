"""Transport on meshes: exact invariances, any number of ranks, and the job on a small set."""

import copy
import json
import shutil

import h5py
import numpy as np
import pytest
import torch
from command_line import run_process
from mesh_files import write_meshes

from scitoolkit import api
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.graphs.grid import ProcessGrid
from scitoolkit.graphs.mesh_baselines import interpolation, persistence
from scitoolkit.graphs.mesh_config import MeshConfig
from scitoolkit.graphs.mesh_data import MeshFile, read_meshes
from scitoolkit.graphs.mesh_job import MeshJob
from scitoolkit.graphs.mesh_model import MeshTransport, step
from scitoolkit.graphs.mesh_pictures import on_grid
from scitoolkit.graphs.mesh_stages import MeshStages
from scitoolkit.graphs.mesh_task import FlowLoader, MeshDynamics
from scitoolkit.graphs.part import GraphPart
from scitoolkit.surrogate import load, start
from scitoolkit.testing.device import check_module, require_gpu
from scitoolkit.testing.ranks import run_ranks
from scitoolkit.training.ranks.communicator import SingleProcess
from scitoolkit.training.traffic import Traffic


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Two small meshes by the dataset's own generator."""
    return write_meshes(
        tmp_path_factory.mktemp("mesh") / "mesh.h5",
        lambda skfem: {
            "circle": skfem.MeshTri.init_circle(3),
            "square": skfem.MeshTri().refined(3),
        },
    )


@pytest.mark.device
def test_a_gpu_gives_the_same_numbers(file):
    """Losses, gradients and rollouts are those of the CPU; states are brought to the host."""
    require_gpu()
    meshes = read_meshes(file)
    task = dynamics(meshes, network())
    batch = next(iter(FlowLoader(np.arange(2), 2)))
    check_module(
        task.model, lambda device: task.loss({k: v.to(device) for k, v in batch.items()})[0]
    )
    expected = task.rollout(np.arange(2), 3)
    task.model.cuda()
    torch.testing.assert_close(task.rollout(np.arange(2), 3), expected)


def network():
    torch.manual_seed(0)
    model = MeshTransport(3, 3, 8, 2, 2)
    torch.nn.init.normal_(model.decode.weight, std=0.05)
    return model


def dynamics(meshes, model, ranks=None, owner=None, grid=ProcessGrid(1)):  # noqa: B008
    owner = np.zeros(meshes.graph.num_nodes, int) if owner is None else owner
    part = GraphPart(meshes.graph, owner, grid, ranks or SingleProcess())
    return MeshDynamics(model, meshes, part, 1e-3)


def test_a_step_is_linear_and_leaves_constants_alone(file):
    task = dynamics(read_meshes(file), network())
    coefficients = task.coefficients(torch.tensor([0, 3])).detach()
    nodes = len(task.part.nodes)
    a, b = torch.randn(nodes, 2, 5), torch.randn(nodes, 2, 5)

    def once(u):
        return step(coefficients, u, task.part)

    assert torch.allclose(once(2 * a - 3 * b), 2 * once(a) - 3 * once(b), atol=1e-4)
    assert torch.allclose(once(a + 7.0), once(a) + 7.0, atol=1e-4)


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_train_and_roll_out_as_one_does(size, file):
    """Loss, gradients and ten steps of one mesh in parts; each rank reads its own rows alone."""
    meshes, batch = MeshFile(file, ["circle"]), next(iter(FlowLoader(np.arange(4), 2, seed=0)))
    model, flows = network(), np.array([1, 4])
    graph = meshes.geometry.graph
    part = GraphPart(graph, np.zeros(graph.num_nodes, int), ProcessGrid(1), SingleProcess())
    one = MeshDynamics(model, read_meshes(file, ["circle"]), part, scaled_by=np.arange(4))
    loss, _ = one.loss(batch)
    wanted = one.rollout(flows, 10)
    owner = np.random.default_rng(0).integers(size, size=graph.num_nodes)

    def work(ranks):
        own = GraphPart(graph, owner, ProcessGrid(size), ranks)
        task = MeshDynamics(copy.deepcopy(model), meshes, own, scaled_by=np.arange(4))
        part_of_loss, _ = task.loss(batch)
        share = task.batch_size(batch) / graph.num_nodes
        part_of_loss.backward(torch.tensor(share))
        gradients = [p.grad for p in task.model.parameters()]
        return float(part_of_loss.detach()) * share, gradients, task.whole_rollout(flows, 10)

    found = run_ranks(size, work, Traffic)
    loss.backward()
    assert sum(part for part, *_ in found) == pytest.approx(float(loss.detach()), rel=1e-5)
    for number, parameter in enumerate(one.model.parameters()):
        total = sum(gradients[number] for _, gradients, _ in found)
        scale = float(parameter.grad.abs().max())
        assert torch.allclose(total, parameter.grad, atol=1e-4 * scale + 1e-9)
    first, *others = [rollout for *_, rollout in found]
    assert others == [None] * (size - 1)
    assert float((wanted[9] - wanted[0]).abs().max()) > 1e-2
    assert torch.allclose(first, wanted, rtol=0, atol=1e-5)


def test_gradients_on_two_threads_have_the_same_bits_every_time(file):
    """Wide enough that torch divides the work among threads."""
    meshes, batch = read_meshes(file), next(iter(FlowLoader(np.arange(4), 4, seed=0)))
    threads, found = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        for _ in range(8):
            torch.manual_seed(0)
            task = MeshDynamics(
                MeshTransport(3, 3, 64, 2, 2), meshes, dynamics(meshes, network()).part, 1e-3
            )
            torch.nn.init.normal_(task.model.decode.weight, std=0.05)
            task.loss(batch)[0].backward()
            found.append(torch.cat([p.grad.flatten() for p in task.model.parameters()]))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(each, found[0]) for each in found)


def test_rows_of_some_nodes_are_those_of_the_whole_file(file):
    whole, some = read_meshes(file), MeshFile(file)
    nodes = np.random.default_rng(1).permutation(whole.graph.num_nodes)[:40]
    rows = some.rows(nodes)
    assert np.array_equal(rows.tracer, whole.tracer[:, :, nodes])
    assert np.array_equal(rows.velocity, whole.velocity[:, nodes])
    assert some.rows(nodes[:0]).tracer.shape == (*whole.tracer.shape[:2], 0)


def short_job(file, folder, **training):
    """Return the configuration of a job of three epochs on the circle."""
    return {
        "domain": "mesh_transport",
        "run": {"root": str(folder)},
        "data": {"path": str(file), "meshes": ["circle"]},
        "split": {"validation": 1, "test": 1},
        "model": {"hidden": 8, "rounds": 2},
        "training": {"epochs": 3, "batch_size": 2, "progress": False, **training},
    }


@pytest.mark.multiproc
def test_prediction_on_two_processes_is_that_of_one(file, tmp_path):
    import xarray as xr

    path = tmp_path / "train.yaml"
    path.write_text(json.dumps(short_job(file, tmp_path, optimizer={"name": "adam", "lr": 0.01})))
    run = api.run(path)
    two = tmp_path / "two.nc"
    done = run_process(tmp_path, "predict", run.path, file, "-o", two, "--nproc", 2)
    assert done.code == 0, done.err
    assert done.out.strip() == str(two)
    one = api.predict(run.path, file, tmp_path / "one.nc")
    with xr.open_dataset(one) as a, xr.open_dataset(tmp_path / "two.nc") as b:
        assert a["tracer"].shape == b["tracer"].shape
        assert float(abs(a["tracer"] - b["tracer"]).max()) < 1e-5
        assert (a["mesh"] == b["mesh"]).all()


def test_other_predictions_refuse_several_processes():
    with pytest.raises(ConfigError, match="2 processes: predict runs in one"):
        api.check_processes("sst_forecast", 2, "predict")


def test_baselines(file):
    meshes, flows = read_meshes(file), np.array([4, 5])
    still = persistence(meshes, flows, 3)
    assert np.array_equal(still[2], meshes.tracer[flows, 0])
    truth = meshes.tracer[flows, 1:11].swapaxes(0, 1)
    carried = interpolation(meshes, flows, 10)
    error, other = ((carried - truth) ** 2).mean(), ((persistence(meshes, flows, 10) - truth) ** 2)
    assert error < 0.7 * other.mean()


def test_the_job_learns_and_predicts(file, tmp_path, caplog):
    path = tmp_path / "train.yaml"
    training = {"strategy": "graph", "epochs": 30, "clip_norm": 1.0}
    settings = short_job(file, tmp_path, **training, optimizer={"name": "adam", "lr": 0.01})
    settings["model"]["hidden"] = 12
    path.write_text(json.dumps(settings))
    run = api.run(path)
    results = json.loads((run.path / "results.json").read_text())
    assert results["metrics"]["error_ratio_circle"] < 0.8
    assert {"error_ratio_square", "rollout_error_ratio"} <= results["metrics"].keys()
    assert [row[0] for row in results["tables"][0]["rows"]] == ["circle (seen)", "square (unseen)"]
    import xarray as xr

    first = results["figures"][0]
    assert first["kind"] == "maps"
    labels = [panel["label"] for panel in first["panels"]]
    assert labels[:3] == ["truth", "surrogate", "error of surrogate"]
    with xr.open_dataset(run.path / "results.nc") as fields:
        assert np.isfinite(fields["truth"]).mean() > 0.7
        np.testing.assert_allclose(
            fields["error of surrogate"], fields["surrogate"] - fields["truth"], atol=1e-5
        )
    assert (run.path / "report" / "index.html").is_file()
    out = api.predict(run.path, file, tmp_path / "rollout.nc")
    with xr.open_dataset(out) as found:
        assert found["tracer"].dims == ("step", "trajectory", "node")
        assert np.isfinite(found["tracer"]).all()
    # Velocities in a unit of a hundredth, which the file does not state.
    fast = tmp_path / "fast.h5"
    shutil.copy(file, fast)
    with h5py.File(fast, "r+") as target:
        target["circle/velocity"][...] *= 100
    caplog.clear()
    api.evaluate(run.path, data=fast)
    told = [r.message for r in caplog.records if "another unit" in r.message]
    assert len(told) == 1
    assert "circle: variable velocity in mean edge lengths per step" in told[0]
    # A folder from before the split and the names of meshes were in record and header.
    folder = ModelFolder(run.path)
    weights, record = folder.load_weights(), folder.record()
    folder.save_weights(weights)
    former = {"meshes": ["circle"], "processes": 1}
    (folder.path / "fit.json").write_text(json.dumps(former))
    again = api.evaluate(run.path)
    assert record["samples"]["test"] == [5]
    assert again.metrics == results["metrics"]
    assert [row[0] for row in again.tables[0].rows] == ["circle (seen)", "square (unseen)"]
    settings["split"]["test"] = 6
    path.write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="together at most 5"):
        api.check(path)


def test_bad_files(file, tmp_path):
    with pytest.raises(DataError, match=r"no mesh ring.*circle, square"):
        read_meshes(file, ["ring"])
    with pytest.raises(DataError, match="not a readable HDF5"):
        read_meshes(tmp_path / "none.h5")

    def changed(name, values):
        path = tmp_path / f"{name}.h5"
        with h5py.File(file) as source, h5py.File(path, "w") as target:
            source.copy("circle", target)
            del target[f"circle/{name}"]
            if values is not None:
                target[f"circle/{name}"] = values(source[f"circle/{name}"][()])
        return path

    with pytest.raises(DataError, match="triangles missing"):
        read_meshes(changed("triangles", None))
    for name, values in (
        ("tracer", lambda u: u[..., :5]),
        ("tracer", lambda u: u[:, :1]),
        ("tracer", lambda u: u[:1]),
        ("velocity", lambda v: v[..., :1]),
        ("positions", lambda x: np.pad(x, ((0, 0), (0, 1)))),
        ("triangles", lambda m: m[:0]),
        ("triangles", lambda m: np.pad(m, ((0, 0), (0, 1)))),
    ):
        with pytest.raises(DataError, match=rf"{name} of shape.*\(K, T \+ 1, N\)"):
            read_meshes(changed(name, values))
    with pytest.raises(DataError, match="triangles name nodes -1 to"):
        read_meshes(changed("triangles", lambda m: m - 1))
    with pytest.raises(DataError, match="velocity holds NaN"):
        read_meshes(changed("velocity", lambda v: v * np.nan))
    for name in ("tracer", "velocity", "positions"):
        for mark in (1e20, -1e34, -9999.0):
            with pytest.raises(DataError, match=rf"{name}.*values are .*: possibly a fill value"):
                read_meshes(changed(name, lambda v, mark=mark: np.where(v == v.flat[7], mark, v)))


def test_fields_on_a_mesh_are_drawn_inside_it_only(file):
    shape = read_meshes(file, ["circle"]).geometry
    plane = shape.positions @ np.array([2.0, -1.0])
    fields = on_grid(shape, {"plane": plane})
    x, y = np.meshgrid(fields["x"], fields["y"])
    inside = np.isfinite(fields["plane"].values)
    np.testing.assert_allclose(fields["plane"].values[inside], (2 * x - y)[inside], atol=1e-4)
    centre = shape.positions.mean(0)
    radius = np.hypot(*(shape.positions - centre).T).max()
    far = np.hypot(x - centre[0], y - centre[1]) > radius
    assert far.any()
    assert not inside[far].any()
    assert inside[np.hypot(x - centre[0], y - centre[1]) < 0.95 * radius].all()


def test_intervals_of_rollouts_cover_other_trajectories(tmp_path):
    """One width for each step; within three standard deviations of the shares of trajectories."""
    import xarray as xr

    file = write_meshes(
        tmp_path / "mesh.h5", lambda skfem: {"circle": skfem.MeshTri.init_circle(2)}, 40
    )
    settings = {
        "domain": "mesh_transport",
        "run": {"root": str(tmp_path)},
        "data": {"path": str(file)},
        "split": {"validation": 15, "test": 20},
        "model": {"hidden": 8, "rounds": 1},
        "intervals": {"coverage": 0.8},
        "training": {"epochs": 10, "batch_size": 5, "progress": False},
    }
    path = tmp_path / "train.yaml"
    path.write_text(json.dumps(settings))
    run = api.run(path)
    metrics = json.loads((run.path / "results.json").read_text())["metrics"]
    out = api.predict(run.path, file, tmp_path / "rollout.nc")
    truth = read_meshes(file).tracer[:, 1:].swapaxes(0, 1)
    with xr.open_dataset(out) as rolled:
        rolled_states = rolled.tracer.values
        inside = ((rolled.tracer_low <= truth) & (truth <= rolled.tracer_high)).values[:, 20:]
        width = (rolled.tracer_high - rolled.tracer_low).mean(("trajectory", "node")).values
    shares = inside.mean((0, 2))
    assert metrics["coverage_tracer"] == pytest.approx(shares.mean(), abs=1e-3)
    # A sixteenth of the mass is beyond the 15 trajectories of the calibration.
    spread = 3 * shares.std() * np.sqrt(1 / 15 + 1 / 20)
    assert 0.8 - spread < shares.mean() < 0.8 + 1 / 16 + spread
    sizes = np.sqrt(((rolled_states - truth) ** 2).mean((1, 2)))
    assert np.corrcoef(width, sizes)[0, 1] > 0.9
    settings["intervals"]["coverage"] = 0.95
    path.write_text(json.dumps(settings))
    with pytest.raises(DataError, match="at least 19 samples"):
        api.check(path)


def test_the_scheme_of_several_networks_is_their_mean(file, tmp_path):
    """Also in a prediction; the first network begins as the network alone."""
    import xarray as xr

    settings = {**short_job(file, tmp_path), "members": 2}
    stages, config = MeshStages(), MeshConfig.model_validate(settings)
    begun = start(stages, config)
    alone = stages.build(config, None, {}, config.seed).state_dict()
    assert all(torch.equal(t, alone[n]) for n, t in begun.model.members[0].state_dict().items())
    begun.close()
    path = tmp_path / "train.yaml"
    path.write_text(json.dumps(settings))
    run = api.run(path)
    model = load(stages, MeshConfig, run.path).model
    first, second = model.members
    assert not torch.equal(first.decode.weight, second.decode.weight)
    meshes, flows = read_meshes(file), np.arange(6)
    tasks = [dynamics(meshes, network) for network in (first, second)]
    mean = sum(t.coefficients(torch.from_numpy(flows)) for t in tasks) / 2
    state = torch.from_numpy(meshes.tracer[:, 0]).T[:, :, None]
    wanted = step(mean, state, tasks[0].part)[..., 0].T.detach().numpy()
    with xr.open_dataset(api.predict(run.path, file, tmp_path / "rollout.nc")) as rolled:
        np.testing.assert_allclose(rolled.tracer[0].values, wanted, atol=1e-5)
    results = json.loads((run.path / "results.json").read_text())
    assert results["metrics"]["error_ratio_circle"] > 0
    assert len(MeshJob().traced(run.path)) == 2
