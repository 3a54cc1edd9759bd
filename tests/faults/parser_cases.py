"""Damaged texts and files through every parser: what a parser raises must be an error of ours.

`python tests/faults/parser_cases.py PARSER COUNT [FIRST]` prints a JSON row for each case that
ended otherwise, and last a row with the number of cases; it is a process, as a parser that crashes
must be seen too.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from format_cases import FORMATS
from fuzzing import ROOT, Parser, cases
from store_cases import STORES
from untrusted_cases import UNTRUSTED


def equation_texts(folder: Path) -> list[bytes]:
    return [
        b"dif(u, t) + u*dif(u, x) = nu*dif(u, x, x)",
        b"dif(dif(u, x), z) - 2.5e-1*(u**3 - w)/nu",
        b"sqrt(u^2 + w^2) * exp(-abs(u)) + log(2 + tanh(w))",
        b"-(u - -w)**2 = 0",
    ]


def parse_equation(path: Path) -> object:
    from scitoolkit.core.expressions import Names, parse

    names = Names(("u", "w"), ("t", "x", "z"), {"nu": 0.1})
    return parse(path.read_text(encoding="utf-8", errors="replace"), names)


def quantity_texts(folder: Path) -> list[bytes]:
    return [
        b"sqrt(u^2 + w^2): abs=1e-2",
        b"gradient(u): abs=1e-3",
        b"u: rel=1e-4",
        b"mean(vorticity(u, w), x): abs=.1",
        b"sqrt(u^2+w^2) @ x=2:5, z=1: pw_rel=1e-2",
    ]


def parse_quantity(path: Path) -> object:
    from scitoolkit.compression.quantities.text import QuantityText

    text = path.read_text(encoding="utf-8", errors="replace")
    return QuantityText.read(text).variables(("u", "w"), ("z", "x"))


def workflow_texts(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "workflows").glob("*/*.yaml"))]


def parse_yaml(path: Path) -> object:
    from scitoolkit.core.config import read_document
    from scitoolkit.core.jobs import checked_job

    return checked_job(read_document(path))


def atoms_texts(folder: Path) -> list[bytes]:
    text = (ROOT / "datasets/acac/isolated_atoms.xyz").read_bytes()
    frames = (ROOT / "datasets/acac/test_MD_300K.xyz").read_bytes().splitlines(keepends=True)
    return [text, b"".join(frames[: 2 * (int(frames[0]) + 2)])]


def parse_atoms(path: Path) -> object:
    from scitoolkit.io.atoms import open_atoms

    frames = open_atoms(path)
    return [frames[k] for k in range(len(frames))]


def streams(folder: Path) -> list[bytes]:
    import numpy as np

    from scitoolkit.compression import compress

    field = np.sin(np.linspace(0, 9, 24 * 20)).reshape(24, 20).astype(np.float32)
    return [compress(field, abs=1e-3, codec=name) for name in ("blocks", "interpolation", "dyadic")]


def parse_stream(path: Path) -> object:
    from scitoolkit.compression import decompress

    return decompress(path.read_bytes())


def parse_file(path: Path) -> object:
    from scitoolkit.io.inspect import describe

    return describe(path)


def read_field(path: Path) -> object:
    from scitoolkit.io.fields import open_fields

    with open_fields([path]) as fields:
        return fields.load()


def small_fields(kind: str) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        import numpy as np
        import xarray as xr

        values = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
        data = xr.Dataset(
            {"u": (("time", "y", "x"), values, {"units": "m s-1"})},
            coords={"time": np.arange(3.0), "y": np.arange(4.0), "x": np.arange(5.0)},
        )
        path = folder / f"seed.{kind}"
        if kind == "npy":
            np.save(path, values)
        elif kind == "npz":
            np.savez(path, u=values, t=np.arange(3.0))
        else:
            data.to_netcdf(path, engine={"nc": "scipy", "h5": "h5netcdf"}[kind])
        return [path.read_bytes()]

    return seeds


def card_texts(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((ROOT / "datasets").glob("*/dataset.yaml"))]


def parse_card(path: Path) -> object:
    from scitoolkit.core.dataset_card import read_card

    folder = path.parent / "card"
    folder.mkdir(exist_ok=True)
    shutil.copy(path, folder / "dataset.yaml")
    return read_card(folder)


def graph_archives(folder: Path) -> list[bytes]:
    import numpy as np

    path = folder / "seed.npz"
    np.savez(
        path,
        x=np.eye(5, 3, dtype=np.float32),
        y=np.arange(5) % 2,
        edge_index=np.array([[0, 1, 2, 3], [1, 2, 3, 4]]),
        train_mask=np.arange(5) < 3,
        test_mask=np.arange(5) >= 3,
    )
    return [path.read_bytes()]


def parse_graph(path: Path) -> object:
    from scitoolkit.graphs.graph import read_graph

    return read_graph(path)


def edge_tables(folder: Path) -> list[bytes]:
    return [b"source,target,weight\n0,1,.5\n1,2,1e-3\n7,3,2\n", b"source,target\n0,1\n12,5\n3,3\n"]


def parquet_tables(folder: Path) -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"source": [0, 1, 7], "target": [1, 2, 3], "weight": [0.5, 1.0, 2.0]})
    pyarrow.parquet.write_table(table, folder / "seed.parquet")
    return [(folder / "seed.parquet").read_bytes()]


def parse_edges(path: Path) -> object:
    from scitoolkit.graphs.edge_files import open_edges

    return list(open_edges(path).blocks())


def trial_logs(folder: Path) -> list[bytes]:
    from scitoolkit.search import Search, real

    search = Search({"x": real(-1, 1)}, lambda c: c["x"] ** 2, directory=folder / "search")
    search.run(trials=5)
    return [(folder / "search" / "trials.jsonl").read_bytes()]


def parse_trials(path: Path) -> object:
    from scitoolkit.search.history import load_history

    shutil.copy(path, path.with_name("trials.jsonl"))
    return load_history(path.parent)


def model_files(name: str) -> Callable[[Path], list[bytes]]:
    def seeds(folder: Path) -> list[bytes]:
        model = shutil.copytree(ROOT / "surrogates/sst_forecast", folder / "surrogates/model")
        (folder / "datasets").symlink_to(ROOT / "datasets")
        return [(model / name).read_bytes()]

    return seeds


def parse_model(name: str) -> Callable[[Path], object]:
    def parse(path: Path) -> object:
        from scitoolkit import api

        model = path.parent / "surrogates/model"
        shutil.copy(path, model / name)
        job, folder = api._job_of(model)
        return job.traced(folder)

    return parse


PARSERS = {
    "equation": Parser(equation_texts, parse_equation),
    "quantity": Parser(quantity_texts, parse_quantity),
    "yaml": Parser(workflow_texts, parse_yaml, ".yaml"),
    "card": Parser(card_texts, parse_card, ".yaml"),
    "extxyz": Parser(atoms_texts, parse_atoms, ".xyz"),
    "stream": Parser(streams, parse_stream, ".stk"),
    "npy": Parser(small_fields("npy"), parse_file, ".npy"),
    "npz": Parser(small_fields("npz"), parse_file, ".npz"),
    "netcdf3": Parser(small_fields("nc"), parse_file, ".nc"),
    "hdf5": Parser(small_fields("h5"), parse_file, ".h5"),
    "npy_values": Parser(small_fields("npy"), read_field, ".npy"),
    "npz_values": Parser(small_fields("npz"), read_field, ".npz"),
    "netcdf3_values": Parser(small_fields("nc"), read_field, ".nc"),
    "hdf5_values": Parser(small_fields("h5"), read_field, ".h5"),
    "graph": Parser(graph_archives, parse_graph, ".npz"),
    "edges": Parser(edge_tables, parse_edges, ".csv"),
    "parquet": Parser(parquet_tables, parse_edges, ".parquet"),
    "trials": Parser(trial_logs, parse_trials, ".jsonl"),
    "model_config": Parser(model_files("config.yaml"), parse_model("config.yaml")),
    "model_fit": Parser(model_files("fit.json"), parse_model("fit.json")),
    "model_weights": Parser(model_files("weights.safetensors"), parse_model("weights.safetensors")),
    **FORMATS,
    **STORES,
    **UNTRUSTED,
}


if __name__ == "__main__":
    cases(PARSERS[sys.argv[1]], sys.argv[1], *map(int, sys.argv[2:]))
