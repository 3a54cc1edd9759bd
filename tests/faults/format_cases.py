"""Parsers of single files and texts other than fields: codecs, models, meshes, logs, requests."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path

from fuzzing import ROOT, Parser

GOLDEN = ROOT / "tests" / "golden"


def text_of(path: Path) -> str:
    """Return the text of a case; bytes that are not UTF-8 become surrogates, as in arguments."""
    return path.read_bytes().decode(errors="surrogateescape")


def texts(*lines: str) -> Callable[[Path], list[bytes]]:
    """Return the seeds of a parser of short texts."""
    return lambda folder: [line.encode() for line in lines]


def digest(values: object) -> str:
    """Return a digest of an array, for comparison."""
    import numpy as np

    array = np.asarray(values)
    return f"{array.shape} {array.dtype} {hashlib.sha256(array.tobytes()).hexdigest()}"


def sizes_and_units(path: Path) -> object:
    from scitoolkit.core.units import canonical_unit, parse_bytes

    canonical_unit(text_of(path))
    return parse_bytes(text_of(path))


def override(path: Path) -> object:
    from scitoolkit.core.config import read_document
    from scitoolkit.core.jobs import checked_job

    text = text_of(path)
    return checked_job(read_document(ROOT / "workflows/node_classification/train.yaml", [text]))


def slurm(path: Path) -> object:
    from scitoolkit.core.processes import process_environment

    return process_environment(
        {
            "SLURM_PROCID": "3",
            "SLURM_NTASKS": "4",
            "SLURM_LOCALID": "1",
            "SLURM_STEP_NODELIST": text_of(path),
            "SLURM_STEP_NUM_TASKS": text_of(path)[-1:] or "4",
        }
    )


def irreps(path: Path) -> object:
    from scitoolkit.cli.ops import _parsed
    from scitoolkit.ops.irreps import Irreps

    text = text_of(path)
    return _parsed(text) if "->" in text else Irreps(text).dim


def operation_specs(folder: Path) -> list[bytes]:
    import torch

    from scitoolkit.ops.codegen.backends import GeneratedC
    from scitoolkit.ops.codegen.examples import Numbers
    from scitoolkit.ops.codegen.kinds import operations

    seeds = []
    for name in operations:
        spec = next(operations.get(name).iterate_examples(Numbers(torch.float32))).spec
        found = GeneratedC.implementations.get(name)
        if isinstance(spec, str) and found is not None and found.source is not None:
            seeds.append(f"{name}\n{spec}".encode())
    return seeds


def operation_source(path: Path) -> object:
    import torch

    from scitoolkit.ops.codegen.sources import c_source

    name, _, spec = text_of(path).partition("\n")
    return c_source(name, torch.float32, spec)


def deepmd_inputs(folder: Path) -> list[bytes]:
    system = str(ROOT / "datasets/water_deepmd/data_0")
    written = {
        "model": {
            "type_map": ["O", "H"],
            "descriptor": {
                "type": "se_e2_a",
                "sel": [46, 92],
                "rcut": 6.0,
                "rcut_smth": 0.5,
                "neuron": [25, 50, 100],
                "axis_neuron": 16,
            },
            "fitting_net": {"neuron": [240, 240, 240], "resnet_dt": True},
        },
        "learning_rate": {"type": "exp", "start_lr": 1e-3, "stop_lr": 1e-8, "decay_steps": 5000},
        "loss": {"type": "ener", "start_pref_e": 0.02, "limit_pref_e": 1},
        "training": {
            "training_data": {"systems": [system], "batch_size": "auto"},
            "numb_steps": 1000,
            "seed": 10,
            "disp_freq": 100,
        },
    }
    return [json.dumps(written, indent=1).encode()]


def configuration(path: Path) -> object:
    from scitoolkit import api

    return api.load(path)


def deepmd_models(folder: Path) -> list[bytes]:
    return [(GOLDEN / "deepmd" / f"{n}.dp").read_bytes() for n in ("radial", "hybrid", "one_side")]


def deepmd_model(path: Path) -> object:
    from scitoolkit.potentials.deepmd.weights import read_deepmd

    return read_deepmd(path)


def databases(folder: Path) -> list[bytes]:
    import ase.db
    from ase import Atoms
    from ase.calculators.singlepoint import SinglePointCalculator

    path = folder / "seed.db"
    with ase.db.connect(path) as database:
        for k in range(3):
            atoms = Atoms("HO", [[0, 0, 0], [0, 0, 1 + 0.1 * k]], cell=[9, 9, 9], pbc=True)
            atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=[[0, 0, 1], [0, 0, -1]])
            database.write(atoms, data={"virial": [0.0] * 9}, kind="test")
    return [path.read_bytes()]


def atoms_file(path: Path) -> object:
    from scitoolkit.io.atoms import open_atoms

    frames = open_atoms(path)
    return [frames[k] for k in range(len(frames))]


def all_streams(folder: Path) -> list[bytes]:
    """Return a stream of each codec, of each enhancer, and of special values."""
    import numpy as np

    from scitoolkit.compression import compress
    from scitoolkit.compression.codecs.base import codecs
    from scitoolkit.core.errors import ScitoolkitError

    rng = np.random.default_rng(0)
    field = np.sin(np.linspace(0, 9, 20 * 16 * 12)).reshape(20, 16, 12).astype(np.float32)
    field += 1e-3 * rng.standard_normal(field.shape, np.float32)
    masked = field.copy()
    masked[:5, 3:9] = np.nan
    masked[7, 7, 7] = np.inf
    out = []
    for name in codecs:
        try:
            out.append(compress(field, abs=1e-2, codec=name))
        except ScitoolkitError:  # its package is not installed
            continue
    out += [
        compress(field, abs=1e-2, codec="blocks", enhancer="linear"),
        compress(masked, abs=1e-2),
        compress(np.zeros(9, np.float32), abs=1e-2),
        compress(field.astype(np.float64), pw_rel=1e-2),
    ]
    out += [path.read_bytes() for path in sorted((GOLDEN / "compression_v1").glob("*.sci"))]
    return out


def stream(path: Path) -> object:
    from scitoolkit.compression import decompress

    return digest(decompress(path.read_bytes()))


def filtered_files(folder: Path) -> list[bytes]:
    import h5py
    import numpy as np

    from scitoolkit.cli.main import run_cli

    field = np.sin(np.linspace(0, 9, 2400)).reshape(40, 60).astype(np.float32)
    with h5py.File(folder / "plain.h5", "w") as file:
        file["u"] = field
    words = ["compress", str(folder / "plain.h5"), str(folder / "stream.h5"), "--abs", "1e-3"]
    assert run_cli(words) == 0
    return [(folder / "stream.h5").read_bytes(), (GOLDEN / "compression_v1/file.h5").read_bytes()]


def filtered_file(path: Path) -> object:
    from scitoolkit.compression.files import decompress_file

    return decompress_file(path, path.with_name("restored.h5"))


def chunks(folder: Path) -> list[bytes]:
    import numpy as np

    from scitoolkit.compression.numcodecs_codec import InterpolationCodec

    x = np.sin(np.linspace(0, 9, 600)).astype(np.float32)
    return [InterpolationCodec(1e-2).encode(a) for a in (x, x.reshape(20, 30).astype(np.float64))]


def chunk(path: Path) -> object:
    from scitoolkit.compression.numcodecs_codec import InterpolationCodec

    return InterpolationCodec(1e-2).decode(path.read_bytes())


def mace_states(folder: Path) -> list[bytes]:
    import numpy as np
    import torch

    from scitoolkit.potentials.equivariant.mace_file import FORMAT

    with np.load(GOLDEN / "mace_options.npz") as arrays:
        name = next(key for key in arrays if key.endswith("/settings")).partition("/")[0]
        held = {
            "format": FORMAT,
            "settings": json.loads(str(arrays[f"{name}/settings"])),
            "state": {
                key.removeprefix(f"{name}/state/"): torch.from_numpy(arrays[key])
                for key in arrays
                if key.startswith(f"{name}/state/")
            },
        }
    torch.save(held, folder / "seed.pt")
    return [(folder / "seed.pt").read_bytes()]


def mace_state(path: Path) -> object:
    from scitoolkit.potentials.equivariant.mace_weights import read_mace

    return read_mace(path)


def nequip_states(folder: Path) -> list[bytes]:
    return [(GOLDEN / "nequip.ckpt").read_bytes()]


def nequip_state(path: Path) -> object:
    from scitoolkit.potentials.equivariant.nequip_weights import read_nequip

    return read_nequip(path)


def meshes(suffix: str) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        import skfem
        from skfem.io.json import to_file

        path = folder / f"seed{suffix}"
        square = skfem.MeshTri().refined(1)
        to_file(square, str(path)) if suffix == ".json" else square.save(str(path))
        shipped = sorted((ROOT / "datasets/mesh_diffusion").glob(f"*{suffix}"))
        small = [path.read_bytes() for path in shipped if path.stat().st_size < 60_000]
        return [path.read_bytes(), *small]

    return seeds


def mesh(path: Path) -> object:
    from scitoolkit.generators.mesh_tracer import load_mesh

    return load_mesh(path)


def trajectories(folder: Path) -> list[bytes]:
    import h5py
    import numpy as np

    with h5py.File(folder / "seed.h5", "w") as file:
        group = file.create_group("square")
        group["positions"] = np.array([[0, 0], [1, 0], [0, 1], [1, 1.0]])
        group["triangles"] = np.array([[0, 1, 2], [1, 3, 2]])
        group["velocity"], group["tracer"] = np.ones((2, 4, 2)), np.ones((2, 3, 4))
    return [(folder / "seed.h5").read_bytes()]


def trajectory(path: Path) -> object:
    from scitoolkit.graphs.mesh_data import read_meshes

    return read_meshes(path)


def pool_files(folder: Path) -> list[bytes]:
    import torch

    from scitoolkit.core.traced import ArraySpec, TracedFunction
    from scitoolkit.deploy.export import export

    torch.manual_seed(0)
    x, y = ArraySpec("x", ("k",), (8,)), ArraySpec("y", ("k",), (16,))
    export([TracedFunction(torch.nn.Linear(8, 16), [x], [y])], folder / "seed.weights")
    return [(folder / "seed.weights").read_bytes()]


def pool_file(path: Path) -> object:
    import numpy as np

    from scitoolkit.deploy.pool import Pool

    with Pool("1MiB") as pool:
        pool.add("model", path)
        (out,), status = pool("model", np.ones((1, 8), np.float32))
    return digest(out), status.tolist()


def requests(kind: str) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        import numpy as np

        values = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3)
        if kind == "json":
            return [json.dumps({"inputs": {"x": values.tolist()}}).encode()]
        file = io.BytesIO()
        np.save(file, values)
        return [file.getvalue()]

    return seeds


def request(kind: str) -> Callable[[Path], object]:
    def parse(path: Path) -> object:
        from scitoolkit.deploy.server import JSON, NPY, _inputs

        return _inputs(path.read_bytes(), JSON if kind == "json" else NPY, [{"name": "x"}])

    return parse


def pods(folder: Path) -> list[bytes]:
    import numpy as np
    import xarray as xr

    from scitoolkit.forecasting import POD

    values = np.random.default_rng(0).normal(size=(24, 5, 4))
    field = xr.DataArray(values, dims=("time", "y", "x"), attrs={"units": "K"})
    return [POD(3).fit(field).save(folder / "seed.safetensors").read_bytes()]


def pod(path: Path) -> object:
    from scitoolkit.forecasting import POD

    return POD.load(path)


def messages(folder: Path) -> list[bytes]:
    import torch

    from scitoolkit.training.exchange.coded import SumMessage

    values = torch.randn(3000, generator=torch.Generator().manual_seed(0)).numpy()
    values[7] = 1e4
    return [SumMessage.of(values, share, 7.0).data.numpy().tobytes() for share in (0.1, 0.0)]


def message(path: Path) -> object:
    import torch

    from scitoolkit.training.exchange.coded import SumMessage

    data = torch.tensor(list(path.read_bytes()), dtype=torch.uint8)
    return SumMessage.read(data, 3000)


def archives(folder: Path) -> list[bytes]:
    import tarfile

    out = []
    for mode in ("gz", "bz2", "xz", ""):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode=f"w:{mode}") as archive:
            for name in ("top/datasets/a/README.md", "top/workflows/b/train.yaml"):
                content = name.encode() * 9
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        out.append(file.getvalue())
    return out


def archive(path: Path) -> object:
    import shutil

    from scitoolkit.core import content

    wanted = {
        name: hashlib.sha256(f"top/{name}".encode() * 9).hexdigest()
        for name in ("datasets/a/README.md", "workflows/b/train.yaml")
    }
    folder = path.parent / "fetched"
    shutil.rmtree(folder, ignore_errors=True)
    content._MANIFEST = path.parent / "manifest.json"
    content._MANIFEST.write_text(json.dumps(wanted))
    content._manifest = lambda: wanted
    content.fetched_folder = lambda: folder
    made = content.fetch_content(path)
    return sorted(
        (str(p.relative_to(made)), p.read_bytes()) for p in made.rglob("*") if p.is_file()
    )


FORMATS = {
    "size": Parser(texts("1GiB", "2.5 MB", "4096", "7e3"), sizes_and_units),
    "override": Parser(
        texts("training.epochs=4", "model.name=gcn", "data.path='a b'", "training={epochs: 3}"),
        override,
    ),
    "slurm_nodes": Parser(texts("gpu[012-015,020],cpu1", "node07", "a1,a2", "[1,2]9"), slurm),
    "irreps": Parser(
        texts("32x0e + 32x1o", "4x0e+1o * 0e + 1o -> 0e + 1o", "2x3y", "1e+2e * 1o -> 2o"), irreps
    ),
    "operation_spec": Parser(operation_specs, operation_source),
    "deepmd_input": Parser(deepmd_inputs, configuration, ".json"),
    "deepmd_model": Parser(deepmd_models, deepmd_model, ".dp"),
    "ase_database": Parser(databases, atoms_file, ".db"),
    "streams": Parser(all_streams, stream, ".sci", checked=True),
    "hdf5_filter": Parser(filtered_files, filtered_file, ".h5"),
    "numcodecs_chunk": Parser(chunks, chunk, ".bin"),
    "mace_state": Parser(mace_states, mace_state, ".pt"),
    "nequip_state": Parser(nequip_states, nequip_state, ".ckpt"),
    "mesh_json": Parser(meshes(".json"), mesh, ".json"),
    "mesh_msh": Parser(meshes(".msh"), mesh, ".msh"),
    "mesh_trajectories": Parser(trajectories, trajectory, ".h5"),
    "pool_weights": Parser(pool_files, pool_file, ".weights", checked=True),
    "request_json": Parser(requests("json"), request("json"), ".json"),
    "request_npy": Parser(requests("npy"), request("npy"), ".npy"),
    "pod": Parser(pods, pod, ".safetensors"),
    "gradient_message": Parser(messages, message, ".bin"),
    "archive": Parser(archives, archive, ".tar.gz", checked=True),
}
