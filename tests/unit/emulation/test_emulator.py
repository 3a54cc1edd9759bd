from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit.core.contracts import Progress
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError, NumericalError
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig, SymmetryConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.emulator import build
from scitoolkit.emulation.metrics import spectrum, vrmse
from scitoolkit.emulation.models.config import FieldModelConfig
from scitoolkit.emulation.normalized_network import Statistics
from scitoolkit.emulation.rollout import linear_extrapolation, rollout
from scitoolkit.emulation.symmetries import Symmetries
from scitoolkit.emulation.task import EmulationTask
from scitoolkit.emulation.variables import Layout, Variable, read_layout


def _layout(inputs="u v k", outputs="u v", grid=(8, 6)):
    sizes = dict(zip("xz", grid, strict=False))

    def variable(name):
        field = name not in "kq"
        dims = tuple(sizes) if field else ("param",)
        return Variable(name, dims, tuple(grid) if field else (3,), "m", field)

    names = [[variable(n) for n in text.split()] for text in (inputs, outputs)]
    return Layout(tuple(names[0]), tuple(names[1]), sizes, {}, "t")


def _config(**sections):
    data = {"path": "x.nc", "inputs": ["u", "v", "k"], "outputs": ["u", "v"]}
    data.update(sections.pop("data", {}))
    return EmulationConfig(data=data, **{"model": {"name": "unet", "widths": [4]}, **sections})


def _statistics(layout, change=0.1):
    values = {
        n: (torch.full((v.size,), 5.0), torch.full((v.size,), 2.0))
        for n, v in layout.variables.items()
    }
    return Statistics(
        values, {n: torch.full((layout.variables[n].size,), change) for n in layout.state}
    )


def test_an_untrained_emulator_is_near_persistence_in_units():
    layout = _layout()
    emulator = build(_config(), layout)
    emulator.set_statistics(_statistics(layout))
    u, v = (5 + 2 * torch.randn(3, 8, 6) for _ in range(2))
    out = emulator(u, v, torch.full((3, 3), 5.0))
    assert (out[0] - u).abs().max() < 1.0
    assert [o.shape for o in out] == [(3, 8, 6), (3, 8, 6)]


def test_fields_may_give_vectors_and_vectors_fields():
    for inputs, outputs in (("u", "q"), ("k", "u"), ("u k", "v q")):
        layout = _layout(inputs, outputs)
        data = {"inputs": inputs.split(), "outputs": outputs.split()}
        emulator = build(_config(data=data), layout)
        given = [torch.randn(2, *v.shape) for v in layout.inputs]
        assert [tuple(o.shape[1:]) for o in emulator(*given)] == [v.shape for v in layout.outputs]


def test_vectors_alone_need_a_perceptron():
    layout = Layout(
        (Variable("k", ("p",), (4,), "", False),), (Variable("q", (), (), "", False),), {}, {}, "t"
    )
    data = {"inputs": ["k"], "outputs": ["q"], "lead": 0}
    with pytest.raises(ConfigError, match="mlp"):
        build(_config(data=data), layout)
    emulator = build(_config(data=data, model={"name": "mlp"}), layout)
    assert emulator(torch.randn(5, 4))[0].shape == (5,)


def test_long_vectors_are_projected():
    layout = _layout("u k", "u")
    long = Variable("k", ("f",), (100,), "", False)
    layout = Layout((layout.inputs[0], long), layout.outputs, layout.grid, {}, "t")
    emulator = build(_config(data={"inputs": ["u", "k"], "outputs": ["u"]}), layout)
    assert emulator(torch.randn(2, 8, 6), torch.randn(2, 100))[0].shape == (2, 8, 6)


def test_a_diagnostic_output_does_not_change_with_a_state_that_does_not():
    layout = _layout("u v", "u v")
    data = {"inputs": ["u", "v"], "outputs": ["u", "v"]}
    emulator = build(_config(data=data, diagnostic={"outputs": ["v"]}), layout)
    u, v = torch.randn(2, 8, 6), torch.randn(2, 8, 6)
    _, same = emulator(u, v, truth={"u": u})
    assert torch.allclose(same, v, atol=1e-6)
    _, other = emulator(u, v, truth={"u": u + 1})
    assert not torch.allclose(other, v, atol=1e-6)


def test_a_diagnostic_output_that_is_no_input_follows_the_state_alone():
    layout = _layout("u", "u v")
    data = {"inputs": ["u"], "outputs": ["u", "v"]}
    emulator = build(_config(data=data, diagnostic={"outputs": ["v"]}), layout)
    state = torch.randn(1, 8, 6)
    first = emulator(torch.randn(1, 8, 6), truth={"u": state})[1]
    assert torch.allclose(first, emulator(torch.randn(1, 8, 6), truth={"u": state})[1])


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"boundary": {"y": "circular"}}, "'y' is not a dim of the grid"),
        ({"coordinates": ["X"]}, "Fix: x"),
        ({"transport": {"q": 3}}, "transport"),
        ({"model": {"name": "fno", "modes": [3, 3, 3]}}, "3 entries"),
    ],
)
def test_dims_that_the_grid_does_not_have_are_refused(sections, message):
    with pytest.raises(ConfigError, match=message):
        build(_config(**sections), _layout())


@pytest.mark.parametrize(
    "sections",
    [
        {"data": {"lead": 0}},
        {"data": {"inputs": ["u", "u"]}},
        {"symmetries": {"shift": ["x"]}},
        {"symmetries": {"mirror": {"x": ["nope"]}}},
        {"diagnostic": {"outputs": ["nope"]}},
        {"diagnostic": {"outputs": ["u", "v"]}},
        {"data": {"outputs": ["q"]}, "rollout": {"steps": 2}},
    ],
)
def test_a_configuration_that_cannot_be_is_refused(sections):
    with pytest.raises(ValueError):
        _config(**sections)


def test_weights_are_read_back_and_damage_is_told(tmp_path):
    layout, config = _layout(), _config()
    emulator = build(config, layout)
    emulator.set_statistics(_statistics(layout))
    path = surrogate.save(emulator, tmp_path)
    given = [torch.randn(1, *v.shape) for v in layout.inputs]
    again = surrogate.load(tmp_path, config)
    assert all(torch.equal(a, b) for a, b in zip(again(*given), emulator(*given), strict=True))
    assert again.layout == layout
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CheckpointError, match="cannot be read"):
        surrogate.load(tmp_path, config)
    with pytest.raises(CheckpointError, match="no weights"):
        surrogate.load(tmp_path / "no", config)
    emulator_of_another = _config(model={"name": "unet", "widths": [6]})
    surrogate.save(emulator, tmp_path)
    with pytest.raises(CheckpointError):
        surrogate.load(tmp_path, emulator_of_another)


@pytest.mark.parametrize(
    ("dtype", "part", "tolerance"), [("float16", 0.6, 1e-2), ("int8", 0.4, 3e-2)]
)
def test_rounded_weights_are_smaller_and_nearly_the_same(tmp_path, dtype, part, tolerance):
    layout, config = _layout(), _config(model={"name": "unet", "widths": [48, 48]})
    emulator = build(config, layout)
    with torch.no_grad():
        for parameter in emulator.parameters():
            torch.nn.init.normal_(parameter, std=0.05)
    whole = surrogate.save(emulator, tmp_path / "whole").stat().st_size
    small = surrogate.save(emulator, tmp_path / "small", dtype).stat().st_size
    assert small < part * whole
    given = [torch.randn(1, *v.shape) for v in layout.inputs]
    own, kept = emulator(*given), surrogate.load(tmp_path / "small", config)(*given)
    for a, b, start in zip(own, kept, given, strict=False):
        assert (a - b).norm() < tolerance * (a - start).norm()


def test_normalisation_is_that_of_the_training_part_alone(wave):
    from scitoolkit.emulation.statistics import measure

    path = wave(20)
    with xr.open_dataset(path) as file:
        values = file["u"].values.astype(np.float64)
    config = _config(data={"path": str(path), "inputs": ["u"], "outputs": ["u"]})
    data = open_data(config.data)
    found = measure(data, [range(3, 11)], config)
    data.dataset.close()
    mean, scale = (float(t) for t in found.values["u"])
    assert mean == pytest.approx(values[3:11].mean(), abs=1e-6)
    assert scale == pytest.approx(values[3:11].std(), rel=1e-5)
    change = np.diff(values[3:11], axis=0)
    assert float(found.changes["u"]) == pytest.approx(np.sqrt((change**2).mean()), rel=1e-5)


def test_a_constant_variable_is_no_division_by_zero_and_has_no_change(tmp_path):
    from scitoolkit.emulation.statistics import measure
    from scitoolkit.io.fields import write_fields

    path = write_fields(xr.Dataset({"u": (("time", "x"), np.full((6, 4), 3.0))}), tmp_path / "c.nc")
    config = _config(data={"path": str(path), "inputs": ["u"], "outputs": ["u"]})
    data = open_data(config.data)
    found = measure(data, [range(6)], config)
    data.dataset.close()
    assert float(found.values["u"][1]) == 1.0
    assert float(found.changes["u"]) == 0.0


def test_one_step_and_more_steps_of_the_loss_agree_with_hand_made_ones():
    layout = _layout("u", "u")
    emulator = build(_config(data={"inputs": ["u"], "outputs": ["u"]}), layout)
    emulator.set_statistics(_statistics(layout, change=0.5))
    batch = {"u": torch.randn(3, 4, 8, 6)}
    first = emulator(batch["u"][:, 0])[0]
    second = emulator(first)[0]
    errors = [((x - batch["u"][:, k]) / 0.5).square().mean() for k, x in ((1, first), (2, second))]
    rollout_config = _config(
        data={"inputs": ["u"], "outputs": ["u"]}, rollout={"steps": 2, "begin": 0.5}
    ).rollout
    task = EmulationTask(emulator, rollout_config)
    assert task.loss(batch)[0].item() == pytest.approx(errors[0].item(), rel=1e-5)
    task.at(Progress(6, 10, 0))
    assert task.loss(batch)[0].item() == pytest.approx((sum(errors) / 2).item(), rel=1e-5)
    pushed = rollout_config.model_copy(update={"steps": 1, "pushforward": 1})
    task = EmulationTask(emulator, pushed)
    task.at(Progress(10, 10, 0))
    loss = task.loss(batch)[0]
    assert loss.item() == pytest.approx(errors[1].item(), rel=1e-5)
    loss.backward()
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in emulator.parameters())


def test_symmetries_are_of_the_solution_not_of_the_tensor():
    layout = _layout("u v", "u v")
    symmetries = Symmetries(SymmetryConfig(shift=["x"], mirror={"z": ["v"]}), layout)
    sample = {n: torch.randn(1, 2, 8, 6) for n in "uv"}
    moved = symmetries.shift(sample, "x", 3)
    assert torch.equal(moved["u"][:, :, 3:], sample["u"][:, :, :-3])
    seen = symmetries.mirror(sample, "z")
    assert torch.equal(seen["u"], sample["u"].flip(3))
    assert torch.equal(seen["v"], -sample["v"].flip(3))
    drawn = symmetries.draw({n: v.expand(64, -1, -1, -1) for n, v in sample.items()})
    signs = {float(torch.sign(d.sum() * sample["v"].sum())) for d in drawn["v"]}
    assert signs == {-1.0, 1.0}
    assert torch.allclose(drawn["u"].sum((1, 2, 3)), sample["u"].sum(), atol=1e-4)


def test_cells_weigh_what_their_width_is():
    dataset = xr.Dataset({"u": (("t", "z"), np.zeros((2, 3)))}, coords={"z": [0.0, 1.0, 3.0]})
    layout = read_layout(dataset, ["u"], ["u"], "t")
    assert layout.weights().tolist() == pytest.approx([1 / 1.5, 1.0, 2 / 1.5])


def test_fields_that_fit_on_no_common_grid_are_refused():
    dataset = xr.Dataset({"u": (("t", "x"), np.zeros((2, 3))), "v": (("t", "y"), np.zeros((2, 4)))})
    with pytest.raises(DataError, match="grid"):
        read_layout(dataset, ["u"], ["v"], "t")
    with pytest.raises(DataError, match="no dim 'time'"):
        read_layout(dataset, ["u"], ["u"], "time")
    four = xr.Dataset({"u": (("t", *"abcd"), np.zeros((1, 1, 1, 1, 1)))})
    with pytest.raises(ConfigError, match="4 space dims"):
        read_layout(four, ["u"], ["u"], "t")


def test_a_rollout_that_explodes_is_an_error():
    layout = _layout("u", "u")
    emulator = build(_config(data={"inputs": ["u"], "outputs": ["u"]}), layout)
    with torch.no_grad():
        for parameter in emulator.parameters():
            parameter.mul_(1e30)
    with pytest.raises(NumericalError, match="not finite after step"):
        list(rollout(emulator, {"u": np.ones((8, 6), np.float32)}, 5))


def test_linear_extrapolation_continues_a_line():
    frames = [{"u": np.full(2, float(k))} for k in range(5)]
    found = [f["u"][0] for f in linear_extrapolation(frames[0], frames[1], 3)]
    assert found == [2.0, 3.0, 4.0]


def test_the_spectrum_obeys_parseval_with_weights():
    field = np.random.default_rng(0).standard_normal((16, 5))
    weights = np.broadcast_to(np.array([0.5, 1.0, 2.0, 1.0, 0.5]), (16, 5))
    assert spectrum(field, 0, weights).sum() == pytest.approx((field**2 * weights).mean(), rel=1e-9)
    assert vrmse(field, np.full_like(field, field.mean())) == pytest.approx(1.0)


class _Plain(FieldModelConfig):
    """A network of another package, which takes no condition."""

    network = "scitoolkit.emulation.models.resnet:ResNet"
    name: str = "plain"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({}, "every input is a field"),
        ({"model": _Plain(), "inputs": ["u", "f"]}, "model plain does not support conditioning"),
    ],
)
def test_a_condition_that_cannot_be_is_refused(sections, message):
    sections = dict(sections)
    inputs = sections.pop("inputs", ["u"])
    known = {"u": Variable("u", ("x",), (8,), "", True), "f": Variable("f", (), (), "", False)}
    layout = Layout(tuple(known[n] for n in inputs), (known["u"],), {"x": 8}, {}, "t")
    config = EmulationConfig.model_validate(
        {"data": {"path": "none.nc", "inputs": inputs, "outputs": ["u"]}, "conditioning": "film"}
    ).model_copy(update=sections)
    with pytest.raises(ConfigError, match=message):
        build(config, layout)
