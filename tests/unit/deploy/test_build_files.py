"""Exported code in builds: CMake, pkg-config, weights in a file beside the code."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import CompiledSurrogate, ExportConfig
from scitoolkit.deploy.export import export
from scitoolkit.deploy.source import LITERAL
from scitoolkit.ops.codegen.compile import find_compiler

MAIN = """#include "wide.h"
#include <stdio.h>
static char workspace[WIDE_WORKSPACE];
int main(void) {
  float x[1][4] = {{0.1f, 0.2f, 0.3f, 0.4f}}, y[1][2];
  if (wide_check(WIDE_ABI, WIDE_CHECKSUM) != WIDE_OK) return 1;
  if (wide(1, x[0], y[0], workspace, sizeof workspace, 0) != WIDE_OK) return 2;
  printf("%.6f %.6f\\n", y[0][0], y[0][1]);
  return 0;
}
"""
LISTS = """cmake_minimum_required(VERSION 3.18)
project(solver C)
find_package(wide CONFIG REQUIRED)
add_executable(main main.c)
target_link_libraries(main wide::wide)
"""
POINT = np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)


def network(width: int = 16) -> tuple[TracedFunction, str]:
    """Return a network and the line that the program prints."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
    specs = [ArraySpec("x", ("a",), (4,))], [ArraySpec("y", ("b",), (2,))]
    first, second = module(torch.tensor(POINT))[0].tolist()
    return TracedFunction(module, *specs), f"{first:.6f} {second:.6f}"


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def near(text: str, wanted: str) -> None:
    np.testing.assert_allclose(
        [float(x) for x in text.split()], [float(x) for x in wanted.split()], atol=3e-6
    )


@pytest.mark.skipif(not shutil.which("cmake"), reason="no cmake")
@pytest.mark.parametrize("suffix", ["c", "so"])
def test_cmake_finds_the_package(suffix, tmp_path):
    function, wanted = network()
    export([function], tmp_path / f"wide.{suffix}", ExportConfig(weights="beside"))
    assert (tmp_path / "wide.bin").exists() == (suffix == "c")
    (tmp_path / "CMakeLists.txt").write_text(LISTS)
    (tmp_path / "main.c").write_text(MAIN)
    run(tmp_path, "cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={tmp_path}")
    run(tmp_path, "cmake", "--build", "build")
    near(run(tmp_path, "build/main"), wanted)


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_pkg_config_names_the_library(tmp_path):
    function, wanted = network()
    export([function], tmp_path / "wide.so")
    (tmp_path / "main.c").write_text(MAIN)
    found = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "wide"],
        env={**os.environ, "PKG_CONFIG_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    run(tmp_path, find_compiler(), "main.c", *found.stdout.split(), "-o", "main")
    near(run(tmp_path, "./main"), wanted)


def test_weights_beside_the_code_are_those_inside_it(tmp_path):
    function, _ = network()
    results = []
    for weights in ("inside", "beside"):
        export([function], tmp_path / f"{weights}.c", ExportConfig(weights=weights))
        command = [find_compiler(), "-O2", "-march=native", "-fPIC", "-shared", "-std=gnu11"]
        run(tmp_path, *command, "-w", f"{weights}.c", "-o", f"{weights}.so", "-lm")
        results.append(CompiledSurrogate(tmp_path / f"{weights}.so")(POINT)[0][0])
    np.testing.assert_array_equal(*results)
    assert not (tmp_path / "inside.bin").exists()
    # Other weights, which do not belong to the code, are told when the library is opened.
    blob = bytearray((tmp_path / "beside.bin").read_bytes())
    blob[5] ^= 1
    (tmp_path / "beside.bin").write_bytes(bytes(blob))
    run(tmp_path, *command, "-w", "beside.c", "-o", "beside.so", "-lm")
    with pytest.raises(Exception, match="weights in it are damaged"):
        CompiledSurrogate(tmp_path / "beside.so")


def test_large_weights_are_beside_the_code(tmp_path):
    function, _ = network(width=LITERAL // 24 + 1)
    record = export([function], tmp_path / "wide.c")
    assert record["weight_bytes"] > LITERAL
    assert (tmp_path / "wide.bin").stat().st_size == record["weight_bytes"]
    assert (tmp_path / "wide.c").stat().st_size < 200_000
