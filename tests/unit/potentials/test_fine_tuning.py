"""Training that starts from weights: E0, frozen layers, replay, new elements, refusals."""

import ase
import ase.io
import numpy as np
import pytest
import torch
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from prepared_potentials import prepare

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError, ScitoolkitError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms import open_atoms
from scitoolkit.io.atoms_formats import from_ase
from scitoolkit.potentials import Calculator, MaceConfig, PotentialConfig, load_model, write_deepmd
from scitoolkit.potentials.graph import collate, configuration_graph
from scitoolkit.potentials.job import PotentialJob
from scitoolkit.potentials.saved import save_model

MACE = {
    "name": "mace",
    "cutoff": 3.0,
    "channels": 4,
    "lmax": 2,
    "correlation": 2,
    "radial_widths": [8],
    "precision": "float64",
    "distance_transform": "agnesi",
}
DEEP = {
    "name": "se_e2_a",
    "sel": [6, 6],
    "cutoff": 3.0,
    "cutoff_smooth": 1.0,
    "embedding": [4],
    "axis_neurons": 2,
    "fitting": [6],
    "precision": "float64",
}


def molecules(symbols, number=8, seed=0):
    rng = np.random.default_rng(seed)
    base = np.array([[0, 0, 0], [0.95, 0, 0], [-0.3, 0.9, 0], [0.2, -0.5, 0.9]])
    return [ase.Atoms(symbols, base + rng.uniform(-0.1, 0.1, base.shape)) for _ in range(number)]


def labelled(path, atoms, calculator, shifts):
    """Write frames with the forces of a calculator and its energies, shifted by element."""
    for each in atoms:
        each.calc = calculator
        energy = each.get_potential_energy() + sum(shifts[s] for s in each.get_chemical_symbols())
        each.calc = SinglePointCalculator(each, energy=energy, forces=each.get_forces())
    write(path, atoms, format="extxyz")
    return str(path)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run directory of a MACE of H and O, frames of it on its E0 and on another."""
    folder = tmp_path_factory.mktemp("source")
    model = MaceConfig(**MACE).build(["H", "O"]).eval()
    with torch.no_grad():
        model.shift.copy_(torch.tensor([-1.0, -3.0]))
        model.average_neighbours.fill_(3.0)
    config = PotentialConfig(
        workflow="w", data={"path": ["a.xyz"]}, model=model.config, type_map=["H", "O"]
    )
    save_model(model, config, folder / "model")
    calculator = Calculator(model, skin=0)
    mixed = [*molecules("OHHH"), *molecules("OHOH", seed=1)]
    former = labelled(folder / "former.xyz", mixed, calculator, {"H": 0.0, "O": 0.0})
    new = labelled(
        folder / "new.xyz",
        [*molecules("OHHO", seed=2), *molecules("OHHH", seed=3)],
        calculator,
        {"H": 5.0, "O": -2.0},
    )
    return model, folder, former, new


def config(data, **start):
    return PotentialConfig.model_validate(
        {
            "data": {"path": [data]},
            "model": {"name": "mace"},
            "start": start,
            "training": {
                "steps": 3,
                "batch_size": 2,
                "progress": False,
                "optimizer": {"name": "adam", "lr": 1e-4},
            },
        }
    )


def test_energies_of_another_reference_are_explained_by_e0_alone(source):
    model, folder, _, new = source
    ready = prepare(config(new, path=str(folder)))
    assert torch.allclose(ready.model.shift, torch.tensor([4.0, -5.0]).double(), atol=1e-6)
    for name, value in ready.model.named_parameters():
        assert torch.equal(value, model.state_dict()[name])
    assert ready.config.model.cutoff == 3.0
    ready.model.eval()
    graph = ready.train[0]
    assert (ready.model(graph)["energy"] - graph["energy"]).abs() < 1e-5


def test_frozen_parameters_do_not_change_and_others_do(source, tmp_path):
    model, folder, _, new = source
    settings = config(new, path=str(folder), frozen=["embedding", "layers.0.*"])
    run = RunDirectory.create(tmp_path, "tuned", settings)
    PotentialJob().train(settings, run)
    tuned = load_model(run.path)[0].state_dict()
    before = model.state_dict()
    frozen = [n for n in dict(model.named_parameters()) if n.startswith(("embedding", "layers.0"))]
    assert all(torch.equal(tuned[name], before[name]) for name in frozen)
    assert not torch.equal(tuned["layers.1.readout.weight.0"], before["layers.1.readout.weight.0"])


def test_replayed_frames_have_energies_on_the_new_e0(source):
    _, folder, former, new = source
    settings = config(new, path=str(folder), replay=[former], replay_frames=5)
    ready = prepare(settings)
    alone = prepare(config(new, path=str(folder)))
    assert len(ready.train) == len(alone.train) + 5
    ready.model.eval()
    for number in range(len(ready.train)):
        graph = ready.train[number]
        assert (ready.model(graph)["energy"] - graph["energy"]).abs() < 1e-5


def test_new_elements_are_refused_or_added_without_changing_the_old(source, tmp_path):
    model, folder, _, _ = source
    atoms = molecules("CHHO")
    calculator = Calculator(MaceConfig(**MACE).build(["H", "O", "C"]), skin=0)
    data = labelled(tmp_path / "c.xyz", atoms, calculator, dict.fromkeys("CHO", 1.0))
    with pytest.raises(DataError, match=r"do not know C.*new_elements=add"):
        prepare(config(data, path=str(folder)))
    ready = prepare(config(data, path=str(folder), new_elements="add"))
    assert ready.model.type_map == ("H", "O", "C")
    old = from_ase(molecules("OHHH", seed=4)[0])
    forces = [
        each.eval()(configuration_graph(old, each.type_map, each.cutoff))["forces"]
        for each in (model, ready.model)
    ]
    assert (forces[0] - forces[1]).abs().max() <= 1e-12 * forces[0].abs().max()


def test_deepmd_weights_start_a_training_and_are_not_extended(source, tmp_path):
    _, _, _, new = source
    deep = PotentialConfig.model_validate(
        {"data": {"path": [new]}, "model": DEEP, "type_map": ["H", "O"]}
    )
    ready = prepare(deep)
    path = str(write_deepmd(ready.model, tmp_path / "model.dp"))
    again = prepare(
        PotentialConfig.model_validate(
            {"data": {"path": [new]}, "model": {"name": "se_e2_a"}, "start": {"path": path}}
        )
    )
    for name, value in ready.model.named_parameters():
        assert torch.equal(value, dict(again.model.named_parameters())[name])
    with pytest.raises(ConfigError, match="elements cannot be added to a DeepPotential"):
        again.model.extend(ready.model)


@pytest.mark.parametrize(
    ("model", "start", "message"),
    [
        ({"name": "mace", "channels": 8}, {}, r"model.channels is 8, .* have 4"),
        ({"name": "nequip"}, {}, r"model.name is 'nequip'"),
        ({"name": "mace"}, {"frozen": ["layer.0.*"]}, r"no parameter is called 'layer.0.\*'"),
        ({"name": "mace"}, {"frozen": ["*"]}, "none is left to train"),
        (
            {"name": "mace"},
            {"replay": "former", "replay_frames": 50},
            "16 frames, 50 are configured",
        ),
    ],
)
def test_bad_settings_are_refused(model, start, message, source):
    _, folder, former, new = source
    given = {**start, "path": str(folder)}
    if "replay" in given:
        given["replay"] = [former]
    settings = PotentialConfig.model_validate(
        {"data": {"path": [new]}, "model": model, "start": given}
    )
    with pytest.raises((ConfigError, DataError), match=message):
        prepare(settings)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("graph.pb", r"dp convert-backend graph\.pb graph\.dp"),
        ("small.nequip.zip", r"start\.path=best\.ckpt .*, from which small\.nequip\.zip was made"),
        ("small.nequip.pt2", r"start\.path=best\.ckpt .*, from which small\.nequip\.pt2 was made"),
        ("other.ckpt", "not a checkpoint of nequip-train"),
        ("foundation.model", r"convert_mace foundation\.model foundation\.pt"),
        ("checkpoint.pt", "deepmd-kit: dp freeze, then dp convert-backend"),
    ],
)
def test_weights_of_other_programs_are_refused_by_validate_with_their_conversion(
    name, fix, source, tmp_path
):
    torch.save({"model": {"a": torch.zeros(1)}}, tmp_path / name)
    start = {"path": str(tmp_path / name)}
    config = PotentialConfig.model_validate({"data": {"path": [source[3]]}, "start": start})
    with pytest.raises(ScitoolkitError, match=fix):
        PotentialJob().validate(config)


def test_former_frames_that_cannot_be_compared_are_refused_before_the_training(source, tmp_path):
    _, folder, former, new = source
    other = ase.io.read(former, 0)
    other.symbols[0] = "N"
    ase.io.write(tmp_path / "other.xyz", other)
    with pytest.raises(DataError, match=r"other.xyz: frame 0: species 'N' is not known"):
        prepare(config(new, path=str(folder), former=[tmp_path / "other.xyz"]))
    bare = ase.Atoms(other.symbols[1:], other.positions[1:], info={"energy": -1.0})
    ase.io.write(tmp_path / "bare.xyz", bare)
    with pytest.raises(DataError, match=r"bare.xyz: frame 0: a frame without forces"):
        prepare(config(new, path=str(folder), former=[tmp_path / "bare.xyz"]))


def test_the_species_are_in_the_order_of_the_weights(source, caplog):
    model, folder, _, new = source
    settings = config(new, path=str(folder)).model_copy(update={"type_map": model.type_map[::-1]})
    assert prepare(settings).model.type_map == model.type_map
    assert "type_map: not used; that of the weights is" in caplog.text


def tuned(source, tmp_path, data, name="tuned", training=None, **start):
    """Return the trained model of a fine-tuning and its run."""
    settings = config(data, path=str(source[1]), **start)
    if training:
        merged = settings.training.model_dump(exclude_unset=True) | training
        settings = PotentialConfig.model_validate(
            settings.model_dump(exclude_unset=True) | {"training": merged}
        )
    run = RunDirectory.create(tmp_path, name, settings)
    PotentialJob().train(settings, run)
    return load_model(run.path)[0], run


MODELS = {
    "mace": MACE,
    "nequip": {
        "name": "nequip",
        "cutoff": 3.0,
        "channels": 4,
        "lmax": 1,
        "layers": 2,
        "precision": "float64",
    },
    "se_e2_a": {**DEEP, "sel": [6, 6, 6]},
    "one_side": {**DEEP, "sel": [6, 6, 6], "type_one_side": False},
    "se_atten": {
        "name": "deep_potential",
        "precision": "float64",
        "fitting": [6],
        "descriptors": [
            {
                "name": "se_atten",
                "cutoff": 3.0,
                "sel": 12,
                "embedding": [4],
                "axis_neurons": 2,
                "attention_layers": 1,
            }
        ],
    },
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("decay", [{"name": "adamw", "weight_decay": 0.5}, {"name": "muon"}])
def test_elements_without_frames_keep_their_weights_and_e0(name, decay, source, tmp_path):
    _, _, _, new = source
    made = PotentialConfig.model_validate(
        {"data": {"path": [new]}, "model": MODELS[name], "type_map": ["H", "C", "O"]}
    )
    model = made.model.build(["H", "C", "O"])
    with torch.no_grad():
        model.get_buffer("shift").copy_(torch.tensor([-1.0, -7.0, -3.0]))
    save_model(model, made.model_copy(update={"workflow": "w"}), tmp_path / "model")
    start = {"path": str(tmp_path / "model")}
    training = {"steps": 4, "batch_size": 2, "progress": False, "optimizer": {**decay, "lr": 1e-2}}
    settings = PotentialConfig.model_validate(
        {"data": {"path": [new]}, "start": start, "training": training}
    )
    run = RunDirectory.create(tmp_path, "tuned", settings)
    PotentialJob().train(settings, run)
    after = load_model(run.path)[0]
    assert after.shift[1] == -7.0
    assert not torch.equal(after.shift, model.shift)
    compared = 0
    for before, own in zip(model.species_weights(), after.species_weights(), strict=True):
        rows = [1] if len(own) == 3 else [1, 3, 4, 5, 7]
        assert torch.equal(own[rows], before[rows])
        compared += len(rows)
        if len(own) == 3 and before[0].any():
            assert not torch.equal(own[0], before[0])
    assert compared


def test_low_rank_changes_are_merged_and_of_low_rank(source, tmp_path):
    model, _, _, new = source
    rates = {"optimizer": {"name": "adam", "lr": 1e-2}}
    after, _ = tuned(
        source, tmp_path, new, training=rates, low_rank={"rank": 1, "parameters": ["layers.*"]}
    )
    before, changed = dict(model.named_parameters()), 0
    assert dict(after.named_parameters()).keys() == before.keys()
    assert torch.equal(after.embedding, before["embedding"])
    for name, value in after.named_parameters():
        change = value - before[name]
        if name.startswith("layers") and min(change.shape[-2:]) > 2:
            values = torch.linalg.svdvals(change)
            assert (values[..., 1:] <= 1e-9 * values[..., :1] + 1e-14).all(), name
            changed += bool(change.any())
    assert changed > 5
    assert (after.layers[1].readout.weight[1] != before["layers.1.readout.weight.1"]).any()


def test_low_rank_changes_start_at_the_weights_and_are_resumed(source, tmp_path):
    _, folder, _, new = source
    low_rank = {"rank": 2}
    ready = prepare(config(new, path=str(folder), low_rank=low_rank))
    plain = prepare(config(new, path=str(folder)))
    graph = ready.train[0]
    for training in (False, True):
        ready.model.train(training)
        plain.model.train(training)
        assert torch.equal(ready.model(graph)["energy"], plain.model(graph)["energy"])
    steps = {"steps": 4, "checkpoint": {"every_steps": 2}}
    whole, _ = tuned(source, tmp_path, new, "whole", steps, low_rank=low_rank)
    _, run = tuned(source, tmp_path, new, "begun", {**steps, "steps": 2}, low_rank=low_rank)
    settings = load_config(PotentialConfig, run.path / "config.yaml")
    more = settings.training.model_copy(update={"steps": 4})
    PotentialJob().train(settings.model_copy(update={"training": more}), run, resume=True)
    for name, value in load_model(run.path)[0].named_parameters():
        assert torch.equal(value, dict(whole.named_parameters())[name])


def test_two_heads_share_features_and_keep_the_energies_of_the_start(source, tmp_path):
    model, folder, former, new = source
    settings = config(new, path=str(folder), replay=[former], heads="separate")
    ready = prepare(settings)
    network = ready.network.eval()
    last = ready.train[len(ready.train) - 1]
    assert last["head"].tolist() == [1]
    plain = model(configuration_graph(open_atoms(former)[15], model.type_map, model.cutoff))
    assert torch.allclose(network(last)["energy"], plain["energy"], atol=1e-10)
    batch = collate([ready.train[i] for i in (0, len(ready.train) - 1, 2, len(ready.train) - 3)])
    mixed = network(batch)
    singles = [network(ready.train[i]) for i in (0, len(ready.train) - 1, 2, len(ready.train) - 3)]
    for key in ("energy", "forces", "virial", "atomic_energy"):
        expected = torch.cat([each[key] for each in singles])
        assert torch.allclose(mixed[key], expected, atol=1e-10), key
    rates = {"optimizer": {"name": "adam", "lr": 1e-2}, "steps": 6}
    after, run = tuned(source, tmp_path, new, training=rates, replay=[former], heads="separate")
    other = load_model(run.path / "former")[0].state_dict()
    for name, value in after.state_dict().items():
        own = "readout" in name or name == "shift"
        assert torch.equal(value, other[name]) != own, name


def test_the_report_compares_the_start_on_new_and_former_frames(source, tmp_path):
    _, _, former, new = source
    rates = {"optimizer": {"name": "adam", "lr": 0.1}}
    after, run = tuned(source, tmp_path, new, training=rates, former=[former])
    results = PotentialJob().evaluate(run.path)
    assert results.metrics["former_force_rmse_before"] < 0.01  # digits of the file
    expected = []
    for frame in open_atoms(former):
        graph = configuration_graph(frame, after.type_map, after.cutoff)
        expected.append((after(graph)["forces"].detach() - graph["forces"]).flatten())
    rmse = 1e3 * float(torch.cat(expected).square().mean().sqrt())
    assert results.metrics["former_force_rmse"] == pytest.approx(rmse, rel=1e-6)
    assert rmse > 1
    assert any("Former frames" in line for line in results.summary)


def test_the_rate_of_fine_tuning_is_gentle_unless_it_is_written(source):
    _, folder, _, new = source
    given = {"data": {"path": [new]}, "start": {"path": str(folder)}}
    settings = PotentialConfig.model_validate(given)
    assert (settings.training.optimizer.lr, settings.training.schedule.name) == (1e-4, "cosine")
    assert settings.model.name == "mace"
    constant = {"schedule": {"name": "constant"}, "steps": 7}
    settings = PotentialConfig.model_validate({**given, "training": constant})
    assert (settings.training.optimizer.lr, settings.training.steps) == (1e-4, 7)
    assert settings.training.schedule.name == "constant"
    written = {"optimizer": {"name": "adam", "lr": 0.02}}
    settings = PotentialConfig.model_validate({**given, "training": written})
    assert (settings.training.optimizer.lr, settings.training.schedule.name) == (0.02, "constant")


def test_elements_are_added_to_nequip_without_changing_the_old(tmp_path):
    small = PotentialConfig.model_validate({"data": {"path": ["a.xyz"]}, "model": MODELS["nequip"]})
    known, more = small.model.build(["H", "O"]).eval(), small.model.build(["H", "O", "C"]).eval()
    more.extend(known)
    frame = from_ase(molecules("OHHH")[0])
    graphs = [configuration_graph(frame, each.type_map, each.cutoff) for each in (known, more)]
    first, second = (each(graph) for each, graph in zip((known, more), graphs, strict=True))
    for key in ("energy", "forces"):
        assert torch.allclose(first[key], second[key], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"heads": "separate"}, "needs frames of the former training"),
        ({"low_rank": {"rank": 0}}, "low_rank.rank|greater than 0"),
        ({"low_rank": {"parameters": ["layer.*"]}}, "no parameter is called"),
        ({"head": "pbe"}, "only .pt files"),
    ],
)
def test_settings_of_heads_and_low_rank_are_refused(start, message, source):
    _, folder, _, new = source
    with pytest.raises((ScitoolkitError, ValueError), match=message):
        prepare(config(new, path=str(folder), **start))


def test_the_workflow_takes_a_start_and_files(source, tmp_path, monkeypatch):
    _, folder, former, new = source
    monkeypatch.chdir(tmp_path)
    overrides = [f"start.path={folder}", f"data.path=[{new}]", f"start.former=[{former}]"]
    run = api.train("fine_tune", [*overrides, "training.steps=2", "training.batch_size=2"])
    tuned_settings = load_model(run.path)[1]
    assert tuned_settings.model.channels == 4
    metrics = api.evaluate(run.path).metrics
    assert {"start_force_rmse", "former_force_rmse", "former_force_rmse_before"} <= metrics.keys()
