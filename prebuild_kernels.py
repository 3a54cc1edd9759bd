"""Compile the kernels for a platform wheel: run `python prebuild_kernels.py`, then build the wheel.

Short runs of the shipped workflows record every C source that they compile, with its flags. Sources
of the codecs, of the graph kernels in usual widths and of the Vlasov generators are added. Every
source is then compiled for each processor level of this architecture (see
`scitoolkit.ops.codegen.prebuilt`); sources without -march=native, such as the HDF5 filter, only for
the lowest level. A wheel built afterwards is specific to this platform but not to a Python version;
without this step the wheel runs on all platforms and compiles its kernels on first use.

Requires gcc, and the packages of the extras `potentials` and `graphs`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent
FRAMES = 2  # frames of each data set of atoms
# Usual feature widths, and heads x width of attention.
OPERATIONS = {
    "spmm": ("1", "2", "4", "7", "8", "16", "32", "64", "128"),
    "graph_attention": ("1x7", "1x16", "4x16", "8x8"),
    "additive_attention": ("1x7", "1x16", "4x16", "8x8"),
    "interpolation": ("",),
    "node_dropout": ("",),
}
# Degree, basis and velocities of the Vlasov generators.
VLASOV = (("2", "serendipity", "1"), ("2", "serendipity", "2"))
# Flags for the processor of this machine, which -march=LEVEL replaces.
NATIVE = ("-march=native", "-mprefer-vector-width=512")
SMALL = ("-fno-asynchronous-unwind-tables", "-fno-ident")


def main() -> None:
    """Rebuild the folder of libraries and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel compilers")
    jobs = parser.parse_args().jobs
    from scitoolkit.ops.codegen import prebuilt

    with tempfile.TemporaryDirectory() as scratch:
        sources = Path(scratch) / "sources"
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            prebuilt.SOURCES: str(sources),
        }
        for arguments in [[str(Path(__file__).resolve()), "--ask"], *_runs(Path(scratch))]:
            print("recording:", *arguments[-2:], flush=True)
            subprocess.run(
                [sys.executable, *arguments],
                cwd=scratch,
                env=environment,
                check=True,
                stdout=subprocess.DEVNULL,
            )
        compile_all(sources, jobs)


def _runs(scratch: Path) -> Iterator[list[str]]:
    """Yield Python arguments that train, evaluate and compress on a few frames of shipped data."""
    from ase.io import read, write

    train = scratch / "train.xyz"
    write(train, read(ROOT / "datasets/acac/train_300K.xyz", index=f":{4 * FRAMES}"))
    few = [f"data.path=[{train}]", f"data.test=[{train}]", "training.steps=2"]
    once = [f"data.test=[{ROOT}/datasets/water_deepmd/data_0]", "training.steps=2"]
    files = ROOT / "datasets"
    for arguments in (
        ["run", str(ROOT / "workflows/acac_mace"), *few],
        ["run", str(ROOT / "workflows/water_deepmd"), *once],
        ["run", str(ROOT / "workflows/node_classification"), "training.epochs=2"],
        ["run", str(ROOT / "workflows/compress_snapshot")],
        ["compress", str(files / "turbulence_sperr/wmag_64.npy"), "a.sci", "--rel", "1e-2"],
    ):
        yield ["-m", "scitoolkit", *arguments]


def ask() -> None:
    """Request the kernels that need no workflow: static ones, and those of usual sizes."""
    import torch

    from scitoolkit.compression.native import library, plugin
    from scitoolkit.deploy import pool_core
    from scitoolkit.generators.submatrix import chebyshev
    from scitoolkit.generators.vlasov import source
    from scitoolkit.graphs import placement, refine
    from scitoolkit.ops.codegen import load_generated, load_library, operations
    from scitoolkit.ops.codegen.compile import read
    from scitoolkit.ops.neighbours import lists
    from scitoolkit.training.memory import activation_codec

    assert lists.available()
    assert not library.unavailable()
    pool_core.library()
    plugin.install("filter")
    for module, name in (
        (lists, "edge_sums.c"),
        (refine, "refine.c"),
        (placement, "placement.c"),
        (chebyshev, "chebyshev.c"),
    ):
        load_library(read(str(module.__file__), name))
    for shape in VLASOV:
        load_generated(source.generate, *shape)
    for dtype in (torch.float32, torch.float64):
        like = torch.zeros(1, dtype=dtype)
        activation_codec.measure(torch.zeros(4, 4, dtype=dtype))
        for name, specs in OPERATIONS.items():
            # Graph networks are trained in float32 only.
            for spec in specs if dtype == torch.float32 else [each for each in specs if not each]:
                operations.get(name).choose(spec, like, "cpu")


def compile_all(sources: Path, jobs: int) -> None:
    """Compile every recorded source for each processor level into the package."""
    from scitoolkit.ops.codegen import prebuilt
    from scitoolkit.ops.codegen.compile import compile_portable, find_compiler

    shutil.rmtree(prebuilt.PREBUILT, ignore_errors=True)
    levels = tuple(prebuilt.levels())

    def build(note: Path) -> None:
        source, flags = prebuilt.read_note(note)
        portable = tuple(flag for flag in flags if flag not in NATIVE)
        for level in levels if NATIVE[0] in flags else levels[-1:]:
            # -O3 doubles the size, so it is used for the most common processors only.
            passes = SMALL if level == levels[0] else (*SMALL, "-O2")
            target = (f"-march={level}", *portable, *(passes if "-O3" in portable else SMALL))
            path = prebuilt.PREBUILT / level / f"{note.stem}.so"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(compile_portable(find_compiler(), source, target))

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(build, sorted(sources.glob("*.c"))))
    prebuilt.write_digests()
    for level in levels:
        sizes = [path.stat().st_size for path in (prebuilt.PREBUILT / level).iterdir()]
        print(f"{level}: {len(sizes)} libraries, {sum(sizes) / 1e6:.1f} MB")


if __name__ == "__main__":
    if "--ask" in sys.argv:
        ask()
    else:
        main()
