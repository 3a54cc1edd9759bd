"""Each extra alone brings what its domain imports, and what error messages say that it brings.

An environment of an extra holds our package, its dependencies, those of the extra, theirs, and
nothing else: links to what is installed here, found through the metadata of the packages.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest

packaging = pytest.importorskip("packaging.requirements")
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NOT_A_DOMAIN = {"all", "dev", "docs"}
WORKFLOWS = ROOT / "workflows"
SERIES = """
import numpy as np, xarray as xr
from scitoolkit.io.fields import open_fields
for part in range(2):
    steps, file = ("t", np.arange(3.0) + 3 * part), f"p{part}.nc"
    xr.Dataset({"a": ("t", np.arange(3.0))}, {"t": steps}).to_netcdf(file, engine="h5netcdf")
with open_fields(["p0.nc", "p1.nc"], ["a"]) as joined:
    assert joined.a.sizes["t"] == 6
"""
STORE = """
import numpy as np, xarray as xr
from scitoolkit.io.fields import open_fields
xr.Dataset({"a": ("t", np.arange(6.0), {"units": "K"})}).to_zarr("a.zarr")
with open_fields("a.zarr", ["a"]) as store:
    assert float(store.a.sum()) == 15
"""
CODECS = """
import numpy as np
from scitoolkit.compression import compress, decompress
field = np.random.default_rng(0).normal(size=(16, 16, 16)).astype(np.float32)
for codec in ("sz3", "sperr", "zfp"):
    stream = compress(field, abs=1e-2, codec=codec)
    assert np.abs(decompress(stream) - field).max() <= 1e-2
"""
LOADER = """
import hdf5plugin, isal, tensorstore
from scitoolkit.io.loader import filters
from scitoolkit.io.loader import zarr
"""
ONNX = """
from scitoolkit.emulation import export
import onnx, onnxruntime, onnxscript
"""
LOGGER = """
from scitoolkit.training.loggers import loggers
assert not any(row.problem for row in loggers.members() if row.name == {name!r})
"""
SERVER = "from scitoolkit.deploy.server import *\nimport fastapi, uvicorn\n"
MESHES = "import skfem, meshio, pymetis, torch_geometric\n"
REFERENCES = """
import json
import numpy as np
from scitoolkit.io.fields import open_fields
np.arange(6.0).tofile("a.bin")
zarray = {"zarr_format": 2, "shape": [6], "chunks": [6], "dtype": "<f8", "compressor": None,
          "fill_value": None, "order": "C", "filters": None}
refs = {".zgroup": '{"zarr_format": 2}', "a/.zarray": json.dumps(zarray),
        "a/.zattrs": '{"_ARRAY_DIMENSIONS": ["t"]}', "a/0": ["a.bin", 0, 48]}
open("refs.json", "w").write(json.dumps({"version": 1, "refs": refs}))
with open_fields("refs.json", ["a"]) as store:
    assert float(store.a.sum()) == 15
import aiohttp
"""
SEARCHES = "import deephyper.hpo, optuna, cmaes\n"
# What each extra is for: commands of scitoolkit, or code.
USES: dict[str, list[tuple[str, ...] | str]] = {
    "zarr": [STORE],
    "dask": [SERIES],
    "grib": ["import cfgrib"],
    "adaptive": ["import yt"],
    "nek5000": ["import pymech"],
    "icechunk": ["import icechunk, zarr"],
    "remote": [REFERENCES],
    "s3": [REFERENCES, "import s3fs"],
    "tensorboard": [LOGGER.format(name="tensorboard")],
    "mlflow": [LOGGER.format(name="mlflow")],
    "wandb": [LOGGER.format(name="wandb")],
    "sklearn": ["from scitoolkit.forecasting import PODTransformer, PolynomialForecaster\n"],
    "hub": ["from huggingface_hub import HfApi\n"],
    "loader": [LOADER],
    "emulation": [ONNX, SERIES, ("validate", str(WORKFLOWS / "field_surrogate"))],
    "potentials": [
        ("run", str(WORKFLOWS / "water_deepmd"), "training.steps=2"),
        ("validate", str(WORKFLOWS / "acac_mace")),
    ],
    "compression": [CODECS, ("run", str(WORKFLOWS / "compress_snapshot"))],
    "search": [SEARCHES, ("validate", str(WORKFLOWS / "sst_search"))],
    "torchsim": ["import scitoolkit.potentials.torch_sim_model, torch_sim"],
    "statsforecast": ["from statsforecast.models import AutoARIMA"],
    "ray": ["import ray"],
    "mpi": ["import mpi4py"],
    "serve": [SERVER, ("serve", "--help")],
    "superresolution": [STORE, SERIES, ("validate", str(WORKFLOWS / "rayleigh_benard"))],
    "graphs": [
        MESHES,
        ("run", str(WORKFLOWS / "node_classification"), "training.epochs=2"),
        ("graphs", "partition", str(ROOT / "datasets/cora/cora.npz"), "parts", "--parts", "2"),
    ],
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def closure(extra: str) -> dict[str, Distribution]:
    """Return all distributions that the package with an extra needs, by name.

    Raises:
        PackageNotFoundError: one is not installed here.
    """
    found: dict[str, Distribution] = {}
    done = set()
    waiting = [
        packaging.Requirement(line) for line in [*PROJECT["dependencies"], f"scitoolkit[{extra}]"]
    ]
    while waiting:
        requirement = waiting.pop()
        name = normal(requirement.name)
        key = (name, *sorted(requirement.extras))
        if key in done:
            continue
        done.add(key)
        if name == "scitoolkit":
            waiting += [packaging.Requirement(x) for e in requirement.extras for x in EXTRAS[e]]
            continue
        found[name] = distribution(name)
        for line in found[name].requires or []:
            needed = packaging.Requirement(line)
            wanted = [{"extra": e} for e in ("", *requirement.extras)]
            if needed.marker is None or any(map(needed.marker.evaluate, wanted)):
                waiting.append(needed)
    return found


def top_names(found: Distribution) -> set[Path]:
    """Return the files and folders of a distribution right below site-packages."""
    site = Path(str(found.locate_file("")))
    tops = {file.parts[0] for file in found.files or [] if file.parts[0] not in ("..", "/")}
    return {site / top for top in tops if top != "__pycache__"}


@pytest.fixture(scope="module")
def metadata(tmp_path_factory) -> Path:
    """Our distribution's metadata as pyproject.toml says it now."""
    folder = tmp_path_factory.mktemp("metadata")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    shutil.unpack_archive(wheel, folder / "unpacked", "zip")
    (found,) = (folder / "unpacked").glob("*.dist-info")
    return found


def environment(extra: str, metadata: Path, folder: Path) -> Path:
    """Return the Python of an environment with an extra alone."""
    try:
        distributions = closure(extra)
    except PackageNotFoundError as error:
        pytest.skip(f"not installed here: {error}")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    links = {path for each in distributions.values() for path in top_names(each)}
    for path in sorted({*links, ROOT / "scitoolkit", metadata}):
        if not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    return folder / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - NOT_A_DOMAIN))
def test_an_extra_alone_brings_what_its_domain_needs(extra, metadata, tmp_path):
    python = environment(extra, metadata, tmp_path / "environment")
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "OMP_NUM_THREADS": "1"}
    for use in USES[extra]:
        command = ["-c", use] if isinstance(use, str) else ["-m", "scitoolkit", *use]
        done = subprocess.run(
            [str(python), *command], cwd=tmp_path, env=clean, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{use}\n{done.stderr[-3000:]}"


@pytest.mark.slow
def test_what_no_extra_brings_is_not_there(metadata, tmp_path):
    python = environment("tensorboard", metadata, tmp_path / "environment")
    for name in ("ase", "zarr", "sympy", "torch_geometric"):
        done = subprocess.run([str(python), "-c", f"import {name}"], capture_output=True, text=True)
        assert "ModuleNotFoundError" in done.stderr, name


def test_every_extra_has_a_use():
    assert set(USES) == set(EXTRAS) - NOT_A_DOMAIN


def hints() -> list[tuple[str, str, str]]:
    """Return (file, package, extra) of every `missing_extra` with both written out."""
    found = []
    for file in sorted((ROOT / "scitoolkit").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "missing_extra(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "missing_extra":
                given = [getattr(each, "value", None) for each in node.args[:2]]
                if all(isinstance(each, str) for each in given):
                    packages = str(given[0]).split(", ")
                    found += [(file.name, package, str(given[1])) for package in packages]
    return found


@pytest.mark.parametrize(("file", "package", "extra"), hints())
def test_the_extra_that_an_error_names_brings_the_package(file, package, extra):
    lines = [packaging.Requirement(line) for line in EXTRAS[extra]]
    named = {normal(line.name) for line in lines}
    assert normal(package) in named or normal(package) in closure(extra)
