"""The pool for programs in C and Fortran: compiled, called, and equal to the pool in Python."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import Pool
from scitoolkit.deploy.export import export
from scitoolkit.deploy.interface import ABI
from scitoolkit.ops.codegen.compile import find_compiler

CALLER = Path(__file__).with_name("c_pool_caller.c")
COUNT = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("c pool")
    for k in range(COUNT):
        torch.manual_seed(k)
        network = nn.Sequential(nn.Linear(7, 40), nn.Tanh(), nn.Linear(40, 5)).eval()
        x = ArraySpec('x "Å"', ("level",), (7,), "K", low=-3.0, high=1.5 + k)
        export(
            [TracedFunction(network, [x], [ArraySpec("y", ("level",), (5,))])],
            out / f"m{k}.weights",
        )
    data = (out / "m0.weights").read_bytes()
    (out / "damaged.weights").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    (out / "cut.weights").write_bytes(data[:-1])
    (out / "header.weights").write_bytes(data[:40] + b"{" + data[41:])
    return out


@pytest.fixture(scope="module")
def size(folder) -> int:
    """Return the bytes of memory of a surrogate."""
    with Pool("1GiB") as pool:
        pool.add("m0", folder / "m0.weights")
        pool("m0", np.zeros((1, 7), np.float32))
        return pool.statistics()["held_bytes"]


def test_the_calling_convention_is_that_of_exports(folder):
    assert f"#define CODE_ABI {ABI} " in (folder / "scitoolkit_pool.c").read_text()


def compiled(folder: Path, *flags: str) -> Path:
    program = folder / "caller"
    source = folder / "scitoolkit_pool.c"
    command = [
        *find_compiler().split(),
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        *flags,
        f"-I{folder}",
        str(CALLER),
        str(source),
        "-o",
        str(program),
        "-ldl",
        "-lpthread",
        "-lm",
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return program


def test_answers_of_a_crowded_pool_in_c_are_those_of_python(folder, size):
    budget = 2 * size + size // 2
    done = subprocess.run([compiled(folder), folder, str(budget)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    words = done.stdout.split()
    counts = {words[k]: int(words[k + 1]) for k in range(0, 10, 2)}
    assert counts["wrong"] == 0
    assert counts["calls"] == 4 * 400
    assert counts["loads"] == counts["evictions"] + 2  # two fit
    assert counts["hits"] + counts["loads"] <= counts["calls"]
    assert counts["evictions"] > 100
    with Pool(budget) as pool:
        pool.add("m1", folder / "m1.weights")
        (y,), status = pool("m1", np.array([[0.5, 0, 0, 0, 0, 0, 0]], np.float32))
    assert status.tolist() == [0]
    assert np.array(words[11:], np.float32).tobytes() == y.tobytes()


@pytest.mark.skipif(not shutil.which("gfortran"), reason="no gfortran")
def test_fortran_has_the_bits_of_python_and_refuses_arrays_of_another_size(folder, size):
    program = folder / "fortran"
    commands = [
        [*find_compiler().split(), "-O2", "-c", "scitoolkit_pool.c"],
        [
            "gfortran",
            "-std=f2018",
            "-Wall",
            "-Werror",
            "scitoolkit_pool.f90",
            str(CALLER.with_name("fortran_pool_caller.f90")),
            "scitoolkit_pool.o",
            "-o",
            str(program),
            "-ldl",
            "-lpthread",
            "-lm",
        ],
    ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    done = subprocess.run([program, folder, str(2 * size)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    *answers, refused = done.stdout.splitlines()
    assert refused == "m0: array y has 12 elements, not 15 for 3 samples"
    x = np.array([[0.125 * i - 0.25 * j for i in range(1, 8)] for j in range(1, 4)], np.float32)
    with Pool(10 * size) as pool:
        for k, answer in enumerate(answers):
            pool.add(f"m{k}", folder / f"m{k}.weights")
            (y,), _ = pool(f"m{k}", x)
            assert np.array(answer.split(), np.float32).tobytes() == y.tobytes()
    assert len(answers) == COUNT


@pytest.mark.slow
def test_threads_of_a_c_program_do_not_race(folder, size):
    """Also of memory that is read after it has left: ThreadSanitizer's, in one program."""
    if shutil.which("setarch") is None:
        pytest.skip("setarch is not installed")
    program = compiled(folder, "-g", "-fsanitize=thread")
    done = subprocess.run(
        ["setarch", "-R", program, folder, str(2 * size)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING: ThreadSanitizer" not in done.stderr
