"""The platform wheel in a separate environment, with a PATH without a compiler."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from platform_wheel import ROOT, build

pytestmark = pytest.mark.slow
MAX_MB = 3
FRAMES = ROOT / "datasets/water_deepmd/data_0"
SNAPSHOT = ROOT / "datasets/turbulence_sperr/wmag_64.npy"
JOBS = {
    "potential": ("run", "water_deepmd", "training.steps=3"),
    "equivariant potential": ("run", "acac_mace", "training.steps=2"),
    "compression": ("run", "compress_snapshot"),
    "file": ("compress", str(SNAPSHOT), "small.sci", "--rel", "1e-2"),
    "forecast": ("run", "sst_forecast", "forecaster.name=pod_ridge"),
    "graph": ("run", "node_classification", "training.epochs=3"),
    "plasma": (
        "generate",
        "vlasov_landau",
        "generator.duration=2",
        "generator.frames=3",
        "draw.samples=1",
        "draw.parameters.wavenumber=[0.5]",
    ),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Run Python with the installed wheel; other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True)
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    others = [p for p in sys.path if p.endswith("site-packages")]
    others = others or [sysconfig.get_paths()["purelib"]]
    (Path(site) / "packages_of_the_tests.pth").write_text("\n".join(others), encoding="utf-8")
    home = folder / "home"
    home.mkdir()
    environment = {
        "PATH": str(python.parent),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(python), *arguments],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture(scope="module")
def scitoolkit(python):
    """Run a command of the installed wheel, in a folder with the workflows."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return python("-m", "scitoolkit", *arguments)

    fetched = run("fetch", str(ROOT))
    assert fetched.returncode == 0, fetched.stderr
    return run


def test_it_is_small_and_of_this_platform(wheel):
    assert wheel.stat().st_size <= MAX_MB * 10**6
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")


@pytest.mark.parametrize("job", JOBS)
def test_a_job_runs_with_prebuilt_kernels(job, scitoolkit):
    done = scitoolkit(*JOBS[job])
    assert done.returncode == 0, done.stderr
    assert "reference runs" not in done.stderr
    if job not in ("forecast", "file"):  # no kernel, and a command that logs nothing
        assert "prebuilt kernels" in done.stderr


POOL = """
import sys
import numpy as np
from scitoolkit.deploy import Pool
with Pool("1MiB") as pool:
    pool.add("halves", sys.argv[1])
    (y,), status = pool("halves", np.full((2, 3), 4, np.float32))
    print(y.tolist(), status.tolist(), pool.statistics()["loads"])
"""


def test_a_pool_calls_surrogates_that_another_machine_has_compiled(python, tmp_path):
    import torch

    from scitoolkit.core.traced import ArraySpec, TracedFunction
    from scitoolkit.deploy.export import export

    halves = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.constant_(halves.weight, 0.5)
    x, y = (ArraySpec(n, ("level",), (w,)) for n, w in (("x", 3), ("y", 1)))
    export([TracedFunction(halves.eval(), [x], [y])], tmp_path / "halves.weights")
    done = python("-c", POOL, str(tmp_path / "halves.weights"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[6.0], [6.0]] [0, 0] 1"


def test_other_sizes_run_as_the_reference_with_one_warning(scitoolkit):
    done = scitoolkit("run", "node_classification", "training.epochs=2", "model.hidden=13")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("spmm: the slow reference runs: no C compiler found") == 1


def test_export_to_c_is_refused_by_name(scitoolkit):
    done = scitoolkit("export", "sst_forecast", "-o", "model.so")
    assert done.returncode != 0
    assert "no C compiler found" in done.stderr
    assert "Traceback" not in done.stderr
