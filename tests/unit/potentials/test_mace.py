"""The MACE model: equal to mace-torch on its weights; symmetries, derivatives, training."""

from pathlib import Path

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import MaceConfig, read_mace
from scitoolkit.potentials.equivariant.layers import silu_scale
from scitoolkit.potentials.graph import configuration_graph

e3nn_math = pytest.importorskip("e3nn.math")

GOLDEN = Path(__file__).parents[2] / "golden" / "mace_models.npz"
SYMBOLS = {1: "H", 8: "O"}
HIDDEN = {"average_neighbours": 7.5, "gate": "silu", "apply_cutoff": True}


def _golden(name):
    arrays = np.load(GOLDEN)
    prefix = f"{name}/state/"
    state = {
        key.removeprefix(prefix): torch.from_numpy(arrays[key])
        for key in arrays.files
        if key.startswith(prefix)
    }
    frame = Configuration(
        np.array([SYMBOLS[n] for n in arrays["numbers"]]),
        arrays["positions"],
        arrays["cell"],
        np.ones(3, dtype=bool),
    )
    return state, frame, {k: arrays[f"{name}/{k}"] for k in ("energy", "forces", "virials")}


@pytest.mark.parametrize("name", ["residual", "plain"])
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_equals_mace_torch_on_its_weights(name, precision, tolerance):
    state, frame, want = _golden(name)
    model = read_mace(state, **HIDDEN, precision=precision)
    found = model(configuration_graph(frame, model.type_map, model.cutoff))
    for ours, theirs in (("energy", "energy"), ("forces", "forces"), ("virial", "virials")):
        error = np.abs(found[ours].detach().numpy() - want[theirs]).max()
        assert error <= tolerance * np.abs(want[theirs]).max()


def test_scale_of_the_activation_is_e3nns():
    assert silu_scale() == pytest.approx(e3nn_math.normalize2mom(torch.nn.functional.silu).cst)


def _frame(seed, atoms=7, box=4.5):
    generator = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.arange(2)] * 3), axis=-1).reshape(-1, 3)[:atoms]
    positions = box * (0.5 * grid + generator.uniform(-0.1, 0.1, (atoms, 3)))
    cell = box * np.eye(3) + generator.uniform(-0.1, 0.1, (3, 3))
    species = np.array(["O", "H", "H", "O", "H", "H", "O"][:atoms])
    return Configuration(species, positions, cell, np.ones(3, dtype=bool))


def _model(**options):
    defaults = {
        "cutoff": 3.0,
        "channels": 4,
        "lmax": 2,
        "radial_widths": [8],
        "num_basis": 4,
        "precision": "float64",
    }
    model = MaceConfig(**{**defaults, **options}).build(["H", "O"]).eval()
    model.average_neighbours.fill_(6.0)
    return model


def _predict(model, frame):
    found = model(configuration_graph(frame, model.type_map, model.cutoff))
    return {key: value.detach().numpy() for key, value in found.items()}


def _moved(frame, positions, cell=None, order=slice(None)):
    cell = frame.cell if cell is None else cell
    return Configuration(frame.species[order], positions, cell, frame.pbc)


def test_table_of_the_radial_networks_is_exact_to_float32():
    frame = _frame(2)
    exact = _predict(_model(precision="float64"), frame)
    for radial_table in (True, False):
        found = _predict(_model(precision="float32", radial_table=radial_table), frame)
        scale = np.abs(exact["forces"]).max()
        assert np.abs(found["forces"] - exact["forces"]).max() <= 3e-6 * scale


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_gradients_of_a_force_loss(precision):
    """By finite differences of the loss along one direction in the space of all parameters."""
    model = _model(precision=precision, radial_table=True)
    model.train()
    graph = configuration_graph(_frame(3), model.type_map, model.cutoff)

    def loss():
        found = model(graph)
        return found["forces"].square().sum() + found["energy"].square().sum()

    generator = torch.Generator().manual_seed(0)
    directions = [torch.randn(p.shape, generator=generator).to(p) for p in model.parameters()]
    loss().backward()
    slope = sum(float((p.grad * d).sum()) for p, d in zip(model.parameters(), directions))  # noqa: B905
    step, values = (1e-6 if precision == "float64" else 1e-3), []
    for sign in (1, -1):
        with torch.no_grad():
            for p, d in zip(model.parameters(), directions):  # noqa: B905
                p += sign * step * d
        values.append(float(loss().detach()))
        with torch.no_grad():
            for p, d in zip(model.parameters(), directions):  # noqa: B905
                p -= sign * step * d
    tolerance = 1e-6 if precision == "float64" else 1e-2
    assert slope == pytest.approx((values[0] - values[1]) / (2 * step), rel=tolerance)


def test_statistics():
    model, frame = _model(), _frame(6)
    graph = configuration_graph(frame, model.type_map, model.cutoff)
    graph["energy"] = torch.tensor([-7.0], dtype=torch.float64)
    graph["forces"] = torch.full((7, 3), 2.0, dtype=torch.float64)
    model.fit_statistics([graph])
    assert float(model.scale) == pytest.approx(2.0)
    assert float(model.shift @ torch.tensor([4.0, 3.0], dtype=torch.float64)) == pytest.approx(-7)
    assert float(model.average_neighbours) == pytest.approx(graph["edge_index"].shape[1] / 7)


def test_foreign_state_dicts_are_refused():
    state, _, _ = _golden("residual")
    with pytest.raises(DataError, match=r"no products\.0"):
        read_mace({k: v for k, v in state.items() if "products" not in k}, **HIDDEN)
    state["radial_embedding.bessel_fn.bessel_weights"] = torch.ones(4)
    with pytest.raises(DataError, match="trained Bessel"):
        read_mace(state, **HIDDEN)


def test_few_edges_train_without_a_table(monkeypatch):
    """The table and the network itself give a step the same gradients, to float32."""
    from scitoolkit.potentials.equivariant import geometry as edge_geometry

    found = []
    for pays in (0, 10**9):
        monkeypatch.setattr(edge_geometry, "TABLE_PAYS", pays)
        model = _model(precision="float32").train()
        prediction = model(configuration_graph(_frame(3), model.type_map, model.cutoff))
        prediction["forces"].square().sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(
        found[0], found[1], rtol=1e-3, atol=1e-4 * float(found[0].abs().max())
    )
