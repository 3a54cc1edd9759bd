"""Bounds on quantities of interest: random cases, files, and texts that cannot be read."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from scitoolkit.cli.main import run_cli
from scitoolkit.compression import Bound, compress, compress_quantities, decompress, inspect_stream
from scitoolkit.compression.check import verify_file
from scitoolkit.compression.choose import Options
from scitoolkit.compression.files import FilePlan, compress_file, decompress_file, wanted_variables
from scitoolkit.compression.quantities.stencil import DerivativeStencil
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import ConfigError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks" / "compression"))
from _quantity_cases import cases, violations

NYX = content_root("datasets") / "nyx_small" / "nyx_z255_32.h5"
SPEED = "sqrt(velocity_x^2 + velocity_y^2 + velocity_z^2): rel=1e-2"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(cases())
def test_no_case_breaks_its_bound(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # means of nothing but missing values
        assert violations(case)[0] == 0


def test_quantities_take_fewer_bytes_than_the_bounds_that_imply_them(tmp_path):
    small = tmp_path / "c.h5"
    assert run_cli(["compress", str(NYX), str(small), "--quantity", SPEED]) == 0
    with h5py.File(NYX) as file:
        velocity = [file[f"native_fields/velocity_{c}"][...] for c in "xyz"]
    speed = np.sqrt(sum(v.astype(float) ** 2 for v in velocity))
    implied = 1e-2 * np.ptp(speed) / np.sqrt(3)
    ours = [s["bytes"] for s in _streams(small)]
    assert len(ours) == 3
    assert sum(ours) < 0.95 * sum(len(compress(v, abs=implied)) for v in velocity)
    back = tmp_path / "d.h5"
    assert run_cli(["decompress", str(small), str(back)]) == 0
    with h5py.File(back) as file:
        decoded = [file[f"native_fields/velocity_{c}"][...].astype(float) for c in "xyz"]
    assert np.abs(np.sqrt(sum(v**2 for v in decoded)) - speed).max() <= 1e-2 * np.ptp(speed)


def _streams(path):
    from scitoolkit.compression.check import describe_streams

    return describe_streams(path)


def test_verify_tells_each_quantity_and_refuses_another_original(tmp_path, capsys):
    small, other = tmp_path / "c.h5", tmp_path / "other.h5"
    texts = ["mean(temperature) @ x=3:9: abs=1", "log(temperature): abs=0.02"]
    plan = FilePlan(Bound("rel", 1e-2), {"temperature": None}, Options(), quantities=tuple(texts))
    compress_file(NYX, small, plan)
    assert wanted_variables(NYX, plan) == ["native_fields/temperature"]
    records = {record["name"]: record for record in verify_file(small, NYX)}
    assert set(records) == {"native_fields/temperature", *texts}
    assert all(r["holds"] and 0 < r["max_error"] <= r["allowed"] for r in records.values())
    other.write_bytes(NYX.read_bytes())
    with h5py.File(other, "r+") as file:
        file["native_fields/temperature"][3, 3, 3] *= 1.05
    assert run_cli(["verify", str(small), str(other)]) == 4
    assert texts[1] in capsys.readouterr().err


def test_each_quantity_is_verified_with_the_positions_of_its_own_dims(tmp_path):
    original, small = tmp_path / "a.h5", tmp_path / "c.h5"
    texts = {"dif(ua, x): abs=1e-3": ("a", "ua", 1.0), "dif(ub, x): abs=1e-3": ("b", "ub", 0.01)}
    with h5py.File(original, "w") as file:
        for group, name, step in texts.values():
            x = file.create_dataset(f"{group}/x", data=np.arange(64) * step)
            x.make_scale("x")
            u = file.create_dataset(f"{group}/{name}", data=np.sin(np.arange(64) / 10))
            u.dims[0].attach_scale(x)
    compress_file(original, small, FilePlan(None, {}, Options(), quantities=tuple(texts)))
    decompress_file(small, tmp_path / "back.h5")
    records = {record["name"]: record for record in verify_file(small, original)}
    with h5py.File(original) as before, h5py.File(tmp_path / "back.h5") as after:
        for text, (group, name, step) in texts.items():
            error = after[f"{group}/{name}"][...] - before[f"{group}/{name}"][...]
            largest = np.abs(np.gradient(error, step)).max()
            assert records[text]["max_error"] == pytest.approx(largest, rel=1e-6)
            assert 0 < largest <= 1e-3


def test_a_region_may_be_tighter_than_the_rest_and_needs_a_bound_of_the_rest():
    x = np.random.default_rng(0).normal(size=(40, 50)).cumsum(0).astype(">f4")
    text = "t @ y=5:9, x=-10: abs=1e-4"
    stream = compress_quantities({"t": x}, [text], bounds=Bound("rel", 1e-2))["t"]
    error = np.abs(decompress(stream).astype(float) - x)
    assert error[5:9, 40].max() <= 1e-4
    assert 1e-2 < error.max() <= 1e-2 * np.ptp(x.astype(float))
    assert inspect_stream(stream)["bytes"] < 1.05 * len(compress(x, rel=1e-2)) + 300
    with pytest.raises(ConfigError, match="only by means or in regions"):
        compress_quantities({"t": x}, [text])


def test_a_tolerance_of_zero_keeps_every_bit():
    x = np.random.default_rng(0).normal(size=500).astype("f4")
    assert (decompress(compress_quantities({"q": x}, ["q^2: abs=0"])["q"]) == x).all()


def test_integers_and_missing_values_are_kept():
    rng = np.random.default_rng(1)
    t = rng.normal(size=(60, 60)).cumsum(1)
    t[:20] = 1e20
    n = rng.integers(0, 9, size=(60, 60), dtype="i2")
    streams = compress_quantities({"t": t, "n": n}, ["n*t: rel=1e-3"], missing=1e20)
    assert (decompress(streams["n"]) == n).all()
    back = decompress(streams["t"])
    assert (back[:20] == 1e20).all()
    valid = (n * t)[20:]
    assert np.abs((n * back)[20:] - valid).max() <= 1e-3 * np.ptp(valid)
    assert len(streams["t"]) < t[20:].nbytes / 4


@pytest.mark.parametrize("orders", [(1, 0), (0, 1), (0, 2), (1, 1)])
def test_derivatives_are_those_of_numpy(orders):
    rng = np.random.default_rng(2)
    f, x = rng.normal(size=(6, 9)), np.cumsum(rng.random(9) + 0.1)
    wanted = f
    for axis, order in enumerate(orders):
        for _ in range(order):
            wanted = np.gradient(wanted, x if axis else np.arange(6.0), axis=axis)
    stencil = DerivativeStencil(f.shape, "yx", orders, {"x": x})
    np.testing.assert_allclose(stencil(f), wanted, rtol=1e-12, atol=1e-12)
    points = tuple(np.unravel_index(np.arange(f.size), f.shape))
    sums = sum(w * f.reshape(-1)[places] for w, places in stencil.terms(points))
    np.testing.assert_allclose(sums, wanted.reshape(-1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("u+: abs=1", "unexpected end of the text"),
        ("u: rms=1", "MODE=VALUE"),
        ("u", "MODE=VALUE"),
        ("u: abs=-1", ">= 0"),
        ("q: abs=1", "unknown name 'q'"),
        ("3: abs=1", "one variable"),
        ("u @ q=1: abs=1", "names 'q'"),
        ("u @ x=3:99: abs=1", "x has 40 points"),
        ("mean(u)^2: abs=1", "outermost"),
        ("vorticity(u): abs=1", "1 components"),
        ("gradient(u, u): abs=1", "none of the dims"),
        ("u @ x=4:2: abs=1", "x has 40 points"),
    ],
)
def test_what_cannot_be_read_is_told(text, said):
    with pytest.raises(ConfigError, match=said):
        compress_quantities({"u": np.zeros((30, 40))}, [text], bounds=Bound("abs", 1.0))


def test_a_job_takes_quantities(tmp_path):
    from scitoolkit import api

    config = tmp_path / "c.yaml"
    config.write_text(
        json.dumps(
            {
                "domain": "compression",
                "data": {"path": str(NYX)},
                "bound": None,
                "quantities": [SPEED],
            }
        )
    )
    job, checked = api.load(config)
    assert len(job.check(checked)["variables"]) == 3


def test_a_plan_without_any_bound_is_refused():
    with pytest.raises(ConfigError, match="no bound and no quantity"):
        FilePlan(None, {"t": None}, Options())
