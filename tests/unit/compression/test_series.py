"""Networks trained on one snapshot enhance the others, whose bounds hold all the same."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.compression import compress, decompress, inspect_stream
from scitoolkit.compression.enhancers.linear import Linear
from scitoolkit.compression.enhancers.network import Network
from scitoolkit.compression.series import NetworkSeries, network_of
from scitoolkit.compression.stored import Stored
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import DataError

FLOW = content_root("datasets") / "rayleigh_benard" / "rb2d_ra1e6_pr1_s43_t20-23.75.h5"


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshots")
    with h5py.File(FLOW) as file:
        frames = file["b"][:3]
    for number, frame in enumerate(frames):
        with h5py.File(folder / f"snapshot_{number}.h5", "w") as out:
            out["flow/b"] = frame
    return sorted(folder.iterdir())


def test_the_first_file_trains_and_the_others_use_its_networks(
    snapshots, tmp_path, capsys, monkeypatch
):
    # On fields this small the linear enhancer wins against a few seconds of training.
    monkeypatch.setattr(Linear, "unavailable", classmethod(lambda cls: "left out"))
    networks, small = tmp_path / "networks", tmp_path / "small"
    given = ["--rel", "1e-2", "--for", "quality", "--codec", "sz3"]
    arguments = [
        "compress",
        *map(str, snapshots[:2]),
        str(small),
        *given,
        "--json",
        "--train-once",
        str(networks),
        "--train-seconds",
        "2",
    ]
    assert run_cli(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["networks"]["trained_on"] == "snapshot_0.h5"
    assert told["networks"]["files"] == 2
    assert told["networks"]["training_seconds"] > 0.5
    assert [v["enhancer"] for one in told["files"] for v in one["variables"]] == ["network"] * 2
    weights = set()
    for name in ("snapshot_0.h5", "snapshot_1.h5"):
        with h5py.File(small / name) as file:
            weights.add(network_of(file["flow/b"][...].tobytes()))
    assert len(weights) == 1
    assert run_cli(["verify", str(small), str(snapshots[0].parent)]) == 0
    later = tmp_path / "later.h5"
    again = ["compress", str(snapshots[2]), str(later), *given, "--enhancer", str(networks)]
    capsys.readouterr()
    assert run_cli(again) == 0
    said = capsys.readouterr().out
    assert "used for 3 files" in said
    assert run_cli(["verify", str(later), str(snapshots[2])]) == 0
    job = tmp_path / "job.yaml"
    job.write_text(
        f"domain: compression\ndata: {{path: {snapshots[2]}}}\nobjective: quality\ncodec: sz3\n"
        f"networks: {networks}\nrun: {{root: {tmp_path}}}\n"
    )
    assert run_cli(["run", str(job)]) == 0
    (results,) = tmp_path.glob("*/*/results.json")
    assert "used for 4 files" in json.loads(results.read_text())["summary"][-1]


def test_wrong_networks_are_refused(snapshots, tmp_path, capsys):
    given = ["compress", *map(str, snapshots[:2]), str(tmp_path / "small"), "--rel", "1e-2"]
    (tmp_path / "empty").mkdir()
    for more, said in (
        (["--enhancer", str(tmp_path / "empty")], "the folder has no networks"),
        (["--train-once", str(tmp_path / "n"), "--enhancer", "linear"], "network, auto"),
        (["--train-once", str(tmp_path / "n"), "--train-seconds", "0.1"], "--for quality"),
    ):
        assert run_cli([*given, *more]) == 2
        assert said in capsys.readouterr().err
    damaged = tmp_path / "t.network"
    damaged.write_bytes(b"\1\1\0")
    x = np.sin(np.linspace(0, 9, 6000, dtype="f4")).reshape(60, 100)
    with pytest.raises(DataError, match=r"t\.network"):
        compress(x, rel=1e-2, objective="quality", enhancer=Network(weights=damaged))


def test_a_network_that_does_not_gain_is_left_out(tmp_path):
    rng = np.random.default_rng(0)
    smooth = np.cumsum(np.cumsum(rng.normal(size=(64, 64)), 0), 1).astype("f4")
    noise = rng.normal(size=(64, 64)).astype("f4")
    given = {"rel": 1e-2, "objective": "quality", "codec": "sz3"}
    weights = Network().fit(
        smooth, smooth + rng.uniform(-1, 1, smooth.shape).astype("f4"), 1.0, (1, 4), 0.2
    )
    assert weights is not None
    (tmp_path / "y.network").write_bytes(weights)
    network = Network(weights=tmp_path / "y.network")
    assert network.fit(noise, noise, 1.0, (1,), 0.0) == weights
    stream = compress(noise, enhancer=network, **given)
    assert np.abs(decompress(stream) - noise).max() <= 1e-2 * np.ptp(noise)
    assert inspect_stream(stream).get("enhancer", {}).get("name") != "network"


def test_training_without_a_network_leaves_no_series(tmp_path):
    stored = Stored.of_stream("u", compress(np.arange(3000.0), abs=1e-2))
    series = NetworkSeries(tmp_path / "networks")
    assert series.keep([stored], "u.nc") == []
    assert not series.exists
