import itertools
import json
import math
import os
import re
from pathlib import Path

import pytest
import torch
from mesh_worker import trained
from torch import nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.models.mlp import MLP
from scitoolkit.emulation.models.transformer import FieldTransformer
from scitoolkit.training import TrainingConfig
from scitoolkit.training.launch import launch
from scitoolkit.training.strategies.config import Mesh
from scitoolkit.training.strategies.mesh.axes import MeshAxes
from scitoolkit.training.strategies.mesh.checks import ComparedCall, check_supported
from scitoolkit.training.strategies.mesh.division import (
    DivisibleNetwork,
    StagedNetwork,
    divided_network,
)
from scitoolkit.training.strategies.mesh.pipeline import balanced_stages
from scitoolkit.training.strategies.mesh.plan import measured_products, mesh_plans

HELPERS = Path(__file__).resolve().parents[2] / "helpers"

TRANSFORMER = {
    "model": {"name": "field_transformer", "width": 16, "blocks": 2, "heads": 4, "patch": 2},
    "padding": ["circular", "zeros"],
}
EXPERTS = {**TRANSFORMER, "model": {**TRANSFORMER["model"], "experts": 4, "blocks": 1}}
AXIAL = {**TRANSFORMER, "model": {**TRANSFORMER["model"], "attention": "axial"}}
RESNET = {"model": {"name": "resnet", "width": 4, "blocks": 2}, "padding": ["circular"]}
VECTORS = {"model": {"name": "mlp", "width": 8, "layers": 3}, "padding": []}


@pytest.fixture
def start(tmp_path, warm_ranks, monkeypatch):
    """Run cases of `mesh_worker` one after the other on ranks; return results by case and rank."""
    path = os.pathsep.join([str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    monkeypatch.setenv("PYTHONPATH", path)

    def run(ranks, cases):
        code = launch(ranks, [str(tmp_path), json.dumps(cases)], module="mesh_worker")
        errors = [path.read_text() for path in sorted(tmp_path.glob("error-*"))]
        results = [
            [torch.load(tmp_path / f"{number}-{rank}.pt") for rank in range(ranks)]
            for number in range(len(cases))
            if (tmp_path / f"{number}-0.pt").exists()
        ]
        return code, results, errors

    return run


def case(network, mesh, **training):
    return {**network, "training": {"strategy": "mesh", "mesh": mesh, **training}}


def check_equal_to_one_process(results, one):
    for rank in results:
        for name, expected in one.items():
            assert (rank[name] - expected).abs().max() <= 1e-12 * expected.abs().max(), name
            assert torch.equal(rank[name], results[0][name]), name


@pytest.mark.multiproc
def test_two_processes_train_as_one_and_continue_on_any_mesh(start, tmp_path):
    folder = str(tmp_path / "run")
    moves = [{"tensor": 2}, {"pipeline": 2, "microbatches": 3}, {"tensor": [1, 1, 2]}]
    cases = [
        case(TRANSFORMER, {"tensor": 2}, accumulate=2),
        case(VECTORS, {"tensor": [2, 1, 1]}, optimizer={"name": "adam", "lr": 0.01}),
        case(EXPERTS, {"expert": 2}, accumulate=2),
        *(
            {
                **case(TRANSFORMER, mesh, steps=step, ema_decay=0.5),
                "run": folder,
                "resume": step > 1,
            }
            for step, mesh in enumerate(moves, 1)
        ),
    ]
    code, results, errors = start(2, cases)
    assert (code, errors) == (0, [])
    for one, several in zip(cases, results, strict=True):
        if "run" not in one:
            check_equal_to_one_process(several, trained(alone(one)))
    whole = trained(alone({**TRANSFORMER, "training": {"steps": 3, "ema_decay": 0.5}}))
    check_equal_to_one_process(results[-1], whole)
    # One process continues a training of a mesh, too.
    longer = {"steps": 4, "ema_decay": 0.5}
    continued = trained({**TRANSFORMER, "training": longer, "run": folder, "resume": True})
    check_equal_to_one_process([continued], trained({**TRANSFORMER, "training": longer}))


@pytest.mark.slow
@pytest.mark.multiproc
@pytest.mark.parametrize(
    ("ranks", "network", "mesh"),
    [
        (8, TRANSFORMER, {"pipeline": 2, "data": 2, "tensor": 2}),
        (8, AXIAL, {"pipeline": 2, "tensor": [1, 2, 2]}),
        (8, VECTORS, {"tensor": [2, 2, 2]}),
        (4, RESNET, {"pipeline": 2, "tensor": 2}),
        (4, RESNET, {"pipeline": 2, "data": 2}),
        (4, VECTORS, {"tensor": [2, 1, 2], "data": 1}),
        (4, AXIAL, {"pipeline": 4, "microbatches": 1}),
        (4, EXPERTS, {"data": 4, "expert": 2}),
        (4, EXPERTS, {"expert": 4}),
        (2, EXPERTS, {"tensor": 2}),
        (2, EXPERTS, {"pipeline": 2}),
    ],
)
def test_meshes_train_as_one_process(start, ranks, network, mesh):
    cases = [case(network, mesh)]
    code, results, errors = start(ranks, cases)
    assert (code, errors) == (0, [])
    check_equal_to_one_process(results[0], trained(alone(cases[0])))


@pytest.mark.multiproc
def test_ranks_of_the_same_samples_draw_the_same_numbers(start, tmp_path):
    """Also after a change of the mesh, whose random states belong to other ranks."""
    folder = str(tmp_path / "noisy")
    cases = [
        {
            **case(VECTORS, mesh, steps=steps),
            "noise": 0.1,
            "run": folder,
            "resume": steps > 1,
        }
        for steps, mesh in ((1, {"tensor": 1}), (2, {"tensor": 2}), (3, {"pipeline": 2}))
    ]
    code, results, errors = start(2, cases)
    assert (code, errors) == (0, [])
    for several in results:
        assert all(torch.equal(several[0][name], several[1][name]) for name in several[0])


@pytest.mark.multiproc
def test_ranks_of_experts_receive_the_bytes_of_the_formula(start):
    code, results, errors = start(2, [{"apart": True}])
    assert (code, errors) == (0, [])
    for result in results[0]:
        assert result["error"] <= 1e-13
        assert result["bytes"] == pytest.approx(result["formula"], rel=0.01)


def alone(described):
    keys = described["training"].keys() - {"strategy", "mesh"}
    return {**described, "training": {key: described["training"][key] for key in keys}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "bf16"}, "does not support precision"),
        ({"compile": True}, "does not support compile"),
        ({"memory": {"activations": "recompute"}}, "does not support memory"),
        ({"pruning": {}}, "does not support pruning"),
        ({"noise_scale": True}, "does not support noise_scale"),
        ({"optimizer": {"name": "lamb"}}, "needs optimizer adam, adamw"),
        ({"optimizer": {"name": "muon"}}, "needs whole parameters"),
        ({"exchange": {"name": "bf16"}}, "does not read exchange"),
        ({"strategy": "ddp"}, "mesh is only read by strategy mesh"),
        ({"strategy": {"name": "ddp", "tensor": 2}}, "has no settings"),
        ({"mesh": {"expert": 2, "tensor": 2}}, "expert 2 and tensor"),
        ({"mesh": {"expert": 2, "tensor": [1, 1, 2]}}, "expert 2 and tensor"),
        ({"mesh": {"expert": 2, "pipeline": 2}}, "expert 2 and pipeline"),
    ],
)
def test_what_a_mesh_does_not_compose_with_is_refused_by_name(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**{"strategy": "mesh", "mesh": {"tensor": 2}, **settings})


def test_a_strategy_with_its_settings_in_one_mapping():
    config = TrainingConfig(strategy={"name": "mesh", "tensor": [1, 2, 2], "data": 2})
    assert config == TrainingConfig(strategy="mesh", mesh={"tensor": [1, 2, 2], "data": 2})
    sharded = TrainingConfig(strategy={"name": "sharded", "stage": 2})
    assert sharded == TrainingConfig(strategy="sharded", sharding={"stage": 2})


@pytest.mark.parametrize("processes", [1, 3, 6, 9, 16])
def test_a_mesh_that_is_not_the_processes_is_refused(processes):
    config = TrainingConfig(strategy="mesh", mesh={"pipeline": 2, "tensor": 2, "data": 2})
    with pytest.raises(ConfigError, match=f"on {processes} processes"):
        config.strategy_on(processes)
    assert config.strategy_on(8).name == "mesh"


@pytest.mark.parametrize(
    "axes", [(1, 1, 1, 1, 1), (2, 3, 1, 2, 1), (1, 3, 2, 1, 2), (2, 1, 1, 2, 2), (2, 2, 2, 2, 3)]
)
def test_ranks_share_a_batch_by_their_place_on_data_and_z(axes):
    pipeline, data, x, y, z = axes
    processes = pipeline * data * x * y * z
    strategy = Mesh(mesh=MeshAxes(pipeline=pipeline, data=data, tensor=(x, y, z)))
    places = torch.arange(processes).view(axes)
    for index in itertools.product(*(range(size) for size in axes)):
        share = strategy.share_of_batch(int(places[index]), processes)
        assert share == (index[1] * z + index[4], data * z)


def test_experts_divide_the_data_and_not_the_processes():
    config = TrainingConfig(strategy="mesh", mesh={"data": 4, "expert": 2})
    assert [config.strategy_on(4).share_of_batch(rank, 4) for rank in range(4)] == [
        (rank, 4) for rank in range(4)
    ]
    with pytest.raises(ConfigError, match="expert 2 of data 3"):
        TrainingConfig(strategy="mesh", mesh={"expert": 2}).strategy_on(3)


@pytest.mark.parametrize("costs", [[1.0] * 7, [3, 1, 1, 1, 5, 1], [0.5, 1, 1, 1, 1, 0.5]])
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_stages_are_divided_with_the_least_largest_cost(costs, parts):
    ranges = balanced_stages(costs, parts)
    assert [i for numbers in ranges for i in numbers] == list(range(len(costs)))
    cuts = itertools.combinations(range(1, len(costs)), parts - 1)
    least = min(
        max(sum(costs[a:b]) for a, b in itertools.pairwise([0, *inner, len(costs)]))
        for inner in cuts
    )
    assert max(sum(costs[i] for i in numbers) for numbers in ranges) == least


@pytest.mark.parametrize(
    ("layer", "words"), [(nn.BatchNorm1d(4), "mixes the samples"), (nn.Dropout(0.1), "random")]
)
def test_layers_that_a_mesh_would_change_are_refused(layer, words):
    with pytest.raises(ConfigError, match=words):
        check_supported(nn.Sequential(nn.Linear(4, 4), layer))


def test_tied_weights_are_refused():
    one, two = nn.Linear(4, 4), nn.Linear(4, 4)
    two.weight = one.weight
    with pytest.raises(ConfigError, match="tied"):
        check_supported(nn.Sequential(one, two))


@pytest.mark.parametrize(("samples", "processes"), [(8, 8), (64, 8), (4096, 8), (6, 6), (5, 1)])
def test_the_planned_mesh_receives_least(samples, processes):
    net = MLP(12, 12, width=48, layers=3)
    products = measured_products(net, torch.zeros(1, 12))
    plans = mesh_plans(net, products, samples, processes)
    assert all(a.received <= b.received for a, b in itertools.pairwise(plans))
    assert len({(plan.data, plan.tensor) for plan in plans}) == len(plans)
    whole = sum(p.numel() for p in net.parameters())
    for plan in plans:
        shares = plan.data * plan.tensor[2]
        assert plan.data * math.prod(plan.tensor) == processes
        assert samples % shares == 0
        assert whole / processes <= plan.weights <= whole
    shared = next(plan for plan in plans if plan.data == processes)
    # Data parallelism receives one ring all-reduce of all gradients.
    assert shared.received == pytest.approx(2 * whole * (processes - 1) / processes)
    assert shared.weights == whole


def test_sizes_that_do_not_divide_are_not_planned():
    net = MLP(3, 3, width=6, layers=3)
    plans = mesh_plans(net, measured_products(net, torch.zeros(1, 3)), 8, 4)
    assert {plan.tensor[1] for plan in plans} == {1, 2}


@pytest.mark.parametrize("kind", [DivisibleNetwork, StagedNetwork])
def test_the_declaring_network_is_the_outermost_and_only_one(kind):
    net = MLP(2, 2)
    assert divided_network(net, kind) == ("", net)
    assert divided_network(nn.Sequential(nn.Tanh(), net), kind) == ("1", net)
    assert divided_network(nn.Sequential(MLP(2, 2), net), kind) is None
    assert divided_network(nn.Linear(2, 2), kind) is None


@pytest.mark.parametrize(
    "network",
    [
        MLP(3, 2, layers=3),
        FieldTransformer(2, 1, ["circular"], width=16, heads=4, blocks=2),
    ],
)
def test_stages_have_all_parameters_and_compute_the_network(network):
    x = torch.randn(3, 3) if isinstance(network, MLP) else torch.randn(3, 2, 12)
    stages = network.stages()
    names = [
        f"{module}.{name}"
        for stage in stages
        for module in stage.modules
        for name, _ in network.get_submodule(module).named_parameters()
    ]
    assert sorted(names) == sorted(name for name, _ in network.named_parameters())
    h = x
    for stage in stages:
        h = stage.run(h, x, None)
    assert torch.equal(h, network(x))


def test_another_output_of_the_divided_network_is_refused():
    whole = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    assert torch.equal(ComparedCall(whole, lambda: whole, {})(x), whole(x))
    for wrong in (lambda x: 1.01 * whole(x), lambda x: whole(x) * torch.nan):
        with pytest.raises(ConfigError, match="other outputs when it is divided"):
            ComparedCall(wrong, lambda: whole, {})(x)


@pytest.mark.multiproc
def test_networks_that_declare_or_fit_wrongly_are_refused_by_name(start):
    expected = {
        "fused": "FusedHeads computes other outputs when it is divided",
        "partial": "the gradient of gain.* differs between the processes of axis y",
        "heads": "blocks.0.into does not divide: 24 outputs among 2 processes in units of 8",
        "no grid": "has no product to divide over x",
        "undeclared": r"Sequential has no network, or several, with `division\(\)`",
        "stages": "2 processes for the 1 stages",
        "shares": "other samples on the ranks",
        "no experts": "no experts on 2 processes",
        "odd experts": "3 experts on 2 processes",
    }
    code, results, errors = start(2, [{"refused": name} for name in expected])
    assert (code, errors) == (0, [])
    for message, ranks in zip(expected.values(), results, strict=True):
        for result in ranks:
            assert re.search(message, result["error"]), result["error"]
