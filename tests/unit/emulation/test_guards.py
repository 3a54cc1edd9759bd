from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import xarray as xr

from scitoolkit import api
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.checks import check_guards
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.export import example_inputs
from scitoolkit.emulation.guards.axes import Grid, read_axis
from scitoolkit.emulation.guards.config import (
    DivergenceFree,
    FixedMean,
    PlaneBalance,
    PressureEquation,
    SpectralFilter,
    ValueRange,
    WallValues,
)
from scitoolkit.emulation.guards.proposals import deviation, proposals
from scitoolkit.emulation.invariants import MAX_FRAMES
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.generators.convection_solver import Convection, gauss_points
from scitoolkit.io.fields import write_fields
from scitoolkit.testing import GuardContract
from scitoolkit.testing.guard import channel

NX, NZ = 48, 24
VELOCITY = {"x": "u", "z": "w"}


@pytest.fixture(scope="module")
def flow():
    """Five frames of convection, (t, x, z), and their grid."""
    solver = Convection(NX, NZ, rayleigh=1e5, dt=0.0125)
    solver.start_at_rest(seed=5)
    solver.advance(5.0)
    rows = []
    for _ in range(5):
        rows.append(solver.frame(NX, NZ))
        solver.advance(0.125)
    frames = {n: np.stack([r[n] for r in rows]).astype(np.float32) for n in "pbuw"}
    return frames, channel(NX, NZ), solver.viscosity


class TestSpectralFilter(GuardContract):
    @pytest.fixture
    def guard(self):
        return SpectralFilter(order=16)


class TestDivergenceFree(GuardContract):
    @pytest.fixture
    def guard(self):
        return DivergenceFree(velocity=VELOCITY)


class TestFixedMean(GuardContract):
    @pytest.fixture
    def guard(self):
        return FixedMean(values={"w": 0.0}, over=["x"])


class TestKeptMean(GuardContract):
    @pytest.fixture
    def guard(self):
        return FixedMean(values={"b": "kept"})


class TestWallValues(GuardContract):
    @pytest.fixture
    def guard(self):
        return WallValues(values={"b": (0.5, -0.5)}, dim="z", dropped=4)


class TestValueRange(GuardContract):
    @pytest.fixture
    def guard(self):
        return ValueRange(ranges={"b": (-0.5, 0.5)})


class TestPressureEquation(GuardContract):
    @pytest.fixture
    def guard(self):
        return PressureEquation(velocity=VELOCITY, force={"z": "b"}, viscosity=1e-3)


class TestPlaneBalance(GuardContract):
    @pytest.fixture
    def guard(self):
        return PlaneBalance(
            dim="z",
            carrier="w",
            diffusivity={"u": 1e-3, "b": 1e-3},
            walls={"b": (0.5, -0.5)},
            step=0.25,
            dropped=4,
        )


def balance(viscosity: float, **changed) -> PlaneBalance:
    settings = {
        "diffusivity": {"u": viscosity, "b": viscosity},
        "walls": {"b": (0.5, -0.5)},
        "step": 0.125,
        "dropped": 2,
    }
    return PlaneBalance(dim="z", carrier="w", **{**settings, **changed})


def test_plane_means_follow_their_own_balance(flow):
    """The means of the flow come back from their fluxes, whatever the emulator made of them."""
    frames, grid, viscosity = flow
    new, old = ({n: torch.from_numpy(v[[i]]) for n, v in frames.items()} for i in (4, 3))
    profile = torch.cos(torch.linspace(-1.5, 1.5, NZ))
    wrong = {**new, "u": new["u"] + 0.1 * profile, "b": new["b"] - 0.1 * profile}
    for name in "ub":
        change = (new[name] - old[name]).mean(1)
        found = balance(viscosity).build(grid)(wrong, old)[name]
        torch.testing.assert_close(found, new[name], rtol=0, atol=0.02 * float(change.abs().max()))


def test_a_mean_that_no_flux_feeds_decays_as_heat_does():
    grid = channel(NX, NZ)
    wave = torch.from_numpy(np.cos(np.pi * gauss_points(NZ))).float().expand(1, NX, NZ)
    still = torch.zeros(1, NX, NZ)
    module = balance(0.05, step=0.1, diffusivity={"u": 0.05}, walls={}).build(grid)
    out = module({"u": still, "w": still}, {"u": wave, "w": still})["u"]
    torch.testing.assert_close(out, wave * float(np.exp(-0.005 * np.pi**2)), rtol=0, atol=2e-5)


def test_walls_of_what_is_not_balanced_are_refused():
    with pytest.raises(ValueError, match="walls names \\['p'\\]"):
        balance(1e-3, walls={"p": (0.0, 0.0)})
    with pytest.raises(ConfigError, match="dropped < 24"):
        balance(1e-3, dropped=24).build(channel(NX, NZ))


def test_planes_that_end_at_walls_are_refused():
    """Their means change by what the walls do too."""
    grid = channel(NX, NZ)
    box = Grid(grid.sizes, grid.coordinates, [], grid.weights)
    with pytest.raises(ConfigError, match="end at walls along x"):
        balance(1e-3).build(box)


@pytest.mark.parametrize(
    "guard",
    [
        FixedMean(values={"v": "kept"}),
        PlaneBalance(dim="x", carrier="u", diffusivity={"v": 1e-3}, step=0.125),
    ],
)
def test_a_guard_of_a_state_that_is_not_given_is_refused(guard, tmp_path):
    u, v = (Variable(name, ("x",), (8,), "", is_field=True) for name in "uv")
    data = {"path": tmp_path, "inputs": ["u"], "outputs": ["u", "v"]}
    config = EmulationConfig(data=data, guards=[guard])
    with pytest.raises(ConfigError, match="'v' is not an input"):
        check_guards(config, Layout((u,), (u, v), {"x": 8}, {}, "time"))
    assert check_guards(config, Layout((u, v), (u, v), {"x": 8}, {}, "time")) == []


def test_what_true_frames_obey_is_left_as_it_is(flow):
    frames, grid, viscosity = flow
    exact = [
        DivergenceFree(velocity=VELOCITY),
        FixedMean(values={"w": 0.0}, over=["x"]),
        WallValues(values={"b": (0.5, -0.5)}, dim="z", dropped=2),
        balance(viscosity),
        PressureEquation(velocity=VELOCITY, force={"z": "b"}, viscosity=viscosity),
    ]
    changes = [max(deviation(g, frames, grid).values()) for g in exact]
    assert max(changes) < 1e-2


def test_a_wrong_viscosity_or_wall_is_seen(flow):
    frames, grid, viscosity = flow
    wrong = PressureEquation(velocity=VELOCITY, viscosity=viscosity)  # without buoyancy
    assert max(deviation(wrong, frames, grid).values()) > 1
    assert max(deviation(balance(3 * viscosity), frames, grid).values()) > PlaneBalance.tolerance
    wall = WallValues(values={"b": (0.4, -0.5)}, dim="z")
    assert deviation(wall, frames, grid)["b"] > WallValues.tolerance


DATASET = Path(__file__).parents[3] / "datasets/rayleigh_benard"


@pytest.mark.parametrize("name", ["s42_t20-24.75", "s42_t25-29.75", "s43_t20-23.75"])
def test_the_tolerance_of_plane_balance_separates_right_from_wrong_coefficients(name):
    """On the shipped convection data: viscosity 1e-3, diffusivity 1e-3, steps of 0.25."""
    with h5py.File(DATASET / f"rb2d_ra1e6_pr1_{name}.h5") as file:
        frames = {n: file[n][:MAX_FRAMES] for n in "uwb"}
        x, z = file["x"][:], file["z"][:]
    points = {"x": x.tolist(), "z": z.tolist()}
    weights = np.broadcast_to(np.gradient(z) / np.gradient(z).mean(), (len(x), len(z)))
    grid = Grid({"x": len(x), "z": len(z)}, points, ["x"], weights)

    def change(viscosity=1e-3, diffusivity=1e-3, **settings):
        coefficients = {"u": viscosity, "b": diffusivity}
        guard = balance(1e-3, **{"diffusivity": coefficients, "step": 0.25, **settings})
        return max(deviation(guard, frames, grid).values())

    assert change() < PlaneBalance.tolerance / 2
    wrong = {
        "three times the viscosity": change(viscosity=3e-3),
        "three times the diffusivity": change(diffusivity=3e-3),
        "a third of the diffusivity": change(diffusivity=1e-3 / 3),
        "half the step": change(step=0.125),
        "twice the step": change(step=0.5),
        "a wrong wall": change(walls={"b": (0.45, -0.5)}),
    }
    assert min(wrong.values()) > 1.5 * PlaneBalance.tolerance, wrong


def test_a_guard_that_returns_nan_breaks_the_data():
    frames = {"u": np.ones((2, 8), np.float32), "v": np.full((2, 8), np.nan, np.float32)}
    grid = Grid({"x": 8}, {}, ["x"], np.ones(8))
    assert deviation(FixedMean(values={"v": 0.0}), frames, grid)["v"] == np.inf


def test_a_single_frame_is_checked_against_its_spread():
    frames = {"u": np.linspace(-1, 1, 8, dtype=np.float32)[None]}
    grid = Grid({"x": 8}, {}, ["x"], np.ones(8))
    assert deviation(ValueRange(ranges={"u": (-2, 2)}), frames, grid)["u"] == 0
    assert deviation(ValueRange(ranges={"u": (0, 2)}), frames, grid)["u"] > ValueRange.tolerance


def test_the_projected_velocity_has_no_divergence_and_no_slip(flow):
    _, grid, _ = flow
    noise = {n: torch.randn(2, NX, NZ) for n in "uw"}
    out = DivergenceFree(velocity=VELOCITY).build(grid)(noise, noise)
    u, w = (out[n].double().numpy() for n in "uw")
    modes = 1j * 2 * np.pi / 4 * np.fft.rfftfreq(NX, 1 / NX)[:-1, None]
    fit = np.polynomial.chebyshev
    scaled = 2 * gauss_points(NZ)
    inverse = np.linalg.inv(fit.chebvander(scaled, NZ - 1))
    slope = fit.chebvander(scaled, NZ - 2) @ fit.chebder(np.eye(NZ)) * 2 @ inverse
    spectra = [np.fft.rfft(v, axis=1)[:, :-1] for v in (u, w)]
    divergence = modes * spectra[0] + spectra[1] @ slope.T
    assert np.abs(divergence).max() < 1e-4 * np.abs(spectra[1] @ slope.T).max()
    ends = fit.chebvander(np.array([-1.0, 1.0]), NZ - 1) @ inverse
    assert max(np.abs(v @ ends.T).max() for v in (u, w)) < 1e-4


def test_periodic_projection_in_three_dims():
    sizes = {"x": 8, "y": 6, "z": 4}
    coordinates = {d: np.arange(n) / n for d, n in sizes.items()}
    grid = Grid(sizes, coordinates, list(sizes), np.ones((8, 6, 4)))
    module = DivergenceFree(velocity={"x": "u", "y": "v", "z": "w"}).build(grid)
    noise = {n: torch.randn(2, 8, 6, 4) for n in "uvw"}
    out = module(noise, noise)
    waves = [np.fft.fftfreq(n, 1 / n) for n in sizes.values()]
    for k, n in zip(waves, sizes.values(), strict=True):
        k[n // 2] = 0
    spectra = [np.fft.fftn(out[n].numpy(), axes=(1, 2, 3)) for n in "uvw"]
    mesh = np.meshgrid(*waves, indexing="ij")
    divergence = sum(k * s for k, s in zip(mesh, spectra, strict=True))
    assert np.abs(divergence).max() < 1e-3
    twice = module(out, out)
    assert all(torch.allclose(twice[n], out[n], atol=1e-5) for n in "uvw")


def test_invariants_that_hold_are_proposed_and_those_that_do_not_are_not(flow):
    frames, grid, _ = flow
    found = proposals(frames, grid)
    assert DivergenceFree(velocity=VELOCITY) in found
    assert FixedMean(values={"w": 0.0}, over=["x"]) in found
    assert any(g.name == "wall_values" and g.values["b"] == (0.5, -0.5) for g in found)
    broken = {**frames, "w": frames["w"] + 0.1, "b": frames["b"] ** 2}
    found = proposals(broken, grid)
    assert "divergence_free" not in [g.name for g in found]
    assert FixedMean(values={"w": 0.0}, over=["x"]) not in found
    assert not any(g.name == "wall_values" and g.values.get("b") == (0.5, -0.5) for g in found)


def test_points_that_suit_no_basis_are_refused():
    uneven = np.array([0.0, 1.0, 2.5, 3.0, 7.0])
    with pytest.raises(ConfigError, match="Chebyshev-Gauss"):
        read_axis("z", uneven, periodic=False)
    with pytest.raises(ConfigError, match="periodic"):
        read_axis("x", gauss_points(8), periodic=True)
    even = Grid({"z": 8}, {"z": np.arange(8.0)}, [], np.ones(8))
    with pytest.raises(ConfigError, match="even points"):
        WallValues(values={"b": (0.0, 1.0)}, dim="z").build(even)


@pytest.fixture
def convection_job(flow, tmp_path, job):
    """Write frames as a file and return the path of a job with sections."""

    def make(**sections):
        frames, grid, _ = flow
        data = xr.Dataset(
            {n: (("time", "x", "z"), v) for n, v in frames.items()},
            coords={"time": 0.125 * np.arange(5.0), **{d: grid.coordinates[d] for d in "xz"}},
        )
        path = write_fields(data, tmp_path / "flow.nc")
        names = ["p", "b", "u", "w"]
        sections = {
            "boundary": {"x": "circular"},
            "split": {"train": 5, "validation": 0, "test": 0},
            "training": {"steps": 2, "batch_size": 2},
            **sections,
        }
        data_section = {"path": str(path), "test": str(path), "inputs": names, "outputs": names}
        return job(data_section, **sections)

    return make


GUARDS = [
    {"name": "spectral_filter", "order": 16},
    {"name": "divergence_free", "velocity": VELOCITY},
    {"name": "wall_values", "values": {"b": [0.5, -0.5]}, "dim": "z"},
    {"name": "value_range", "ranges": {"b": [-0.5, 0.5]}},
    {
        "name": "pressure_equation",
        "velocity": VELOCITY,
        "force": {"z": "b"},
        "viscosity": 3.1623e-3,
    },
]


def test_guards_act_in_training_rollout_file_and_export(convection_job, tmp_path):
    run = api.train(convection_job(guards=GUARDS, rollout={"steps": 2, "begin": 0, "long": 6}))
    results = api.evaluate(run.path)
    assert results.metrics["finite_steps"] == 6
    source = tmp_path / "flow.nc"
    api.predict(run.path, source, tmp_path / "out.nc", steps=3)
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as out:
        assert out.sizes["time"] == 3
        assert abs(float(out.w.mean("x").max())) < 1e-5
        assert float(abs(out.b).max()) <= 0.5
    model = ModelFolder(run.path)
    emulator = surrogate.load(model.path, model.config(EmulationConfig)).eval()
    inputs = example_inputs(emulator, 1)
    program = torch.export.export(emulator, inputs, strict=False).module()
    for own, exported in zip(emulator(*inputs), program(*inputs), strict=True):
        assert torch.allclose(own, exported, atol=1e-5)


def test_guards_that_the_data_break_are_refused_before_training(convection_job):
    path = convection_job(
        guards=[{"name": "wall_values", "values": {"b": [0.2, -0.5]}, "dim": "z"}]
    )
    with pytest.raises(ConfigError, match="the data break it"):
        api.train(path)
    _, found = api.validate(path)
    assert any(f.level == "error" and f.key == "guards.0" for f in found)


def test_validate_proposes_what_holds(convection_job):
    _, found = api.validate(convection_job())
    text = "\n".join(map(str, found))
    assert "{name: divergence_free, velocity: {x: u, z: w}}" in text
    assert "{name: fixed_mean, values: {w: 0.0}, over: [x]}" in text


def test_a_wall_declared_periodic_is_warned_of(convection_job):
    _, found = api.validate(convection_job(boundary={"x": "circular", "z": "circular"}))
    assert any(f.level == "warning" and f.key == "boundary.z" for f in found)


def test_a_guard_of_an_unknown_variable_is_refused(convection_job):
    path = convection_job(guards=[{"name": "value_range", "ranges": {"c": [0.0, 1.0]}}])
    with pytest.raises(ConfigError, match="'c' is not a field"):
        api.train(path)


def test_what_a_guard_computes_is_in_the_loss_when_it_weighs(convection_job):
    from scitoolkit.emulation.stages import prepare, statistics_of

    losses = []
    for weight in (0.0, 2.0, 8.0):
        path = convection_job(guards=GUARDS, guarded_weight=weight)
        job = prepare(api.load(path)[1])
        batch = next(iter(job.loaders["train"]))
        loss, _ = job.task.loss(batch)
        losses.append(float(loss.detach()))
        if weight:
            answer = job.model(*(batch[v.name][:, 0] for v in job.opened.data.layout.inputs))
            names = [v.name for v in job.opened.data.layout.outputs]
            error = answer[names.index("p")] - batch["p"][:, 1]
            change = statistics_of(job.opened).statistics.changes["p"].square().mean().sqrt()
            squared = (error / change).square() * job.task.weights
            pressure = float(squared.mean().detach())
            learned = len(names) - 1
            wanted = (learned * losses[0] + weight * pressure) / (learned + 1)
            assert losses[-1] == pytest.approx(wanted, rel=1e-4)
        job.opened.data.dataset.close()
    assert losses[0] != losses[1]


def test_a_weight_of_what_no_guard_computes_is_refused(convection_job):
    with pytest.raises(ConfigError, match="no guard computes an output"):
        api.train(convection_job(guarded_weight=1.0))
