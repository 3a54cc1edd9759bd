import errno
import json
import os
import pickle

import pytest
import torch

from scitoolkit.core.errors import CheckpointError, ScitoolkitError
from scitoolkit.training import checkpoint
from scitoolkit.training.checkpoint import Checkpoints, Reader, Snapshot
from scitoolkit.training.state import load_tensors
from scitoolkit.training.strategies.base import SingleStrategy


@pytest.fixture
def kept(tmp_path):
    out = Checkpoints(tmp_path / "c", SingleStrategy(torch.device("cpu")))
    for step in (1, 2):
        tensors = {"model.w": torch.full((3, 2), float(step)), "model.s": torch.tensor(1.0)}
        out.save(step, Snapshot(tensors, {"step": step}))
    return out


def truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [truncate, flip, os.remove])
@pytest.mark.parametrize("name", ["rank-00000.safetensors", "state.json", "rank-00000.json"])
def test_damage_is_named_and_the_older_one_offered(kept, damage, name):
    path = kept.newest()
    damage(path / name)
    with pytest.raises(CheckpointError, match=f"{name}.*continue from step-00000001"):
        kept.open(path)


def test_every_flipped_bit_of_the_manifest_is_a_checkpoint_error(kept):
    path = kept.newest() / "MANIFEST.json"
    data = path.read_bytes()
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            path.write_bytes(bytes(damaged))
            with pytest.raises(CheckpointError):
                Reader(path.parent)


def test_a_pickle_is_never_executed(kept, tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    path = kept.newest()
    for file in list(path.iterdir()):
        file.write_bytes(pickle.dumps(Evil()))
        with pytest.raises(CheckpointError):
            kept.open(path)
    # Even when the manifest vouches for the pickle:
    evil = pickle.dumps(Evil())
    (path / "rank-00000.safetensors").write_bytes(evil)
    for name in ("state.json", "rank-00000.json"):
        entry = {"index": {"w": {"shape": [1], "offset": 0}}, "state": {}}
        (path / name).write_text(json.dumps(entry))
    import hashlib

    files = {
        f.name: {"size": f.stat().st_size, "sha256": hashlib.sha256(f.read_bytes()).hexdigest()}
        for f in path.iterdir()
        if f.name != "MANIFEST.json"
    }
    manifest = {"format": 2, "world_size": 1, "files": files}
    seal = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / "MANIFEST.json").write_text(json.dumps({**manifest, "sha256": seal}))
    with pytest.raises(CheckpointError, match="not readable"):
        kept.open(path).tensor("w")
    assert not (tmp_path / "executed").exists()


def test_a_full_disk_leaves_the_older_checkpoints(kept, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(ScitoolkitError, match="No space left on device"):
        kept.save(3, Snapshot({"model.w": torch.ones(1)}, {}))
    assert [p.name for p in kept.list()] == ["step-00000001", "step-00000002"]
    assert not list(kept.folder.glob(".*"))
    kept.open(kept.newest())


def test_last_and_best_are_kept(kept):
    kept.save(3, Snapshot({"model.w": torch.ones(1)}, {}), best=0.5)
    for step in (4, 5, 6):
        kept.save(step, Snapshot({"model.w": torch.ones(1)}, {}))
    assert [p.name[-1] for p in kept.list()] == ["3", "5", "6"]
    assert kept.best().name == "step-00000003"


def test_rows_and_incomplete_restores(kept):
    reader = kept.open(kept.newest())
    assert reader.part("model.w", (1, 0), (2, 2)).shape == (2, 2)
    assert reader.tensor("model.s").item() == 1.0
    both = {"model.w": torch.zeros(3, 2), "model.s": torch.tensor(0.0)}
    load_tensors(both, reader)
    assert both["model.w"].eq(2).all()
    for wrong in (
        {"model.w": torch.zeros(3, 2)},
        {**both, "model.new": torch.zeros(1)},
        {**both, "model.w": torch.zeros(2, 3)},
        {**both, "model.w": torch.zeros(3, 2, dtype=torch.float64)},
    ):
        with pytest.raises(CheckpointError):
            load_tensors(wrong, reader)


def test_a_kill_between_the_two_renames_loses_nothing(kept):
    newest = kept.newest()
    newest.rename(kept.folder / f".{newest.name}.old")
    assert kept.newest().name == "step-00000001"
    assert kept.recovered() == newest
    assert kept.open(newest).state == {"step": 2}
    (kept.folder / ".step-00000001.old").mkdir()  # killed before the old one was removed
    assert kept.recovered() == newest
    assert not list(kept.folder.glob(".step-*"))
