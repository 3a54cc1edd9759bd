"""The GPU backend on a machine without a GPU: the interpreter, Triton's compiler, the choice."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_line import run_code

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import triton_version
from scitoolkit.ops.tensor_product import Edges, TensorProductSpec, tensor_product_convolution

pytest.importorskip("e3nn")
needs_triton = pytest.mark.skipif(not triton_version(), reason="triton is not installed")

# Compiles every kernel of a spec down to machine code, with Triton's own ptxas.
COMPILE = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from scitoolkit.ops.tensor_product import TensorProductSpec, triton_operators, triton_source

target = GPUTarget("cuda", 80, 32)
for kernel in {*triton_source.KERNELS, *triton_source.ATOMIC_KERNELS}:
    shared = kernel == "weights"
    spec = TensorProductSpec.channelwise("32x0e+32x1o", "0e+1o", "0e+1o", shared_weights=shared)
    for double in (False, True):
        module = triton_operators.kernel(spec.text, kernel, double, torch.float32)
        names = triton_source.arguments(kernel, double).split(", ")
        integers = ("sdx", "sdy", "sdw", "num_edges", "run")
        types = {n: "i64" if n in integers else "*fp32" if n.isupper() else "*i64" for n in names}
        done = triton.compile(ASTSource(module.kernel, types), target, triton_operators.LAUNCH)
        assert len(done.asm["cubin"]) > 1000
        assert "atom." not in done.asm["ptx"]
        assert ("red." in done.asm["ptx"]) == (kernel not in triton_source.KERNELS)
        print("compiled", kernel, double)
"""

# The same of operations on rows, whose kernels are plain functions of arrays.
COMPILE_ROWS = """
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from scitoolkit.ops.codegen import load_triton
from scitoolkit.ops.radial import RadialSpec, triton_source as radial
from scitoolkit.ops.spherical_harmonics import HarmonicsSpec, triton_source as harmonics

target = GPUTarget("cuda", 90, 32)
sources = [harmonics.generate(HarmonicsSpec((0, 1, 2), "component", True))]
sources += [radial.generate(RadialSpec(kind, 4, 5.0, 6)) for kind in ("bessel", "gaussian")]
for source in sources:
    module = load_triton(source)
    for name in ("forward", "backward", "double_backward"):
        kernel = getattr(module, name)
        for real in ("*fp32", "*fp64"):
            types = {each: "i64" if each == "N" else real for each in kernel.arg_names}
            done = triton.compile(ASTSource(kernel, types), target, {"enable_fp_fusion": True})
            assert len(done.asm["cubin"]) > 1000
            print("compiled", name, real)
"""


# Reductions over the nonzeros of sparse rows, and the product sampled at them.
COMPILE_SEGMENTS = """
import re, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from scitoolkit.ops.attention import triton_kernels as attention
from scitoolkit.ops.spmm import triton_kernels as spmm

target = GPUTarget("cuda", 80, 32)
indices = {"nnz": "i64", "column": "*i32", **dict.fromkeys(("pointer", "ends", "rows"), "*i64")}
graph, additive = (
    each("2x24", torch.float32) for each in (attention.kernels, attention.additive_kernels)
)
products = spmm.kernels("48", torch.float64)
for module, names, real in (
    (products, ("product_weighted", "sampled"), "*fp64"),
    (products, ("product", "product_weighted_pieces"), "*fp32"),
    (graph, ("forward", "columns"), "*fp32"),
    (additive, ("forward_pieces", "rows"), "*fp32"),
):
    for name in names:
        kernel = getattr(module, name)
        types = {each: indices.get(each, real) for each in kernel.arg_names}
        types |= {each: "*fp64" for each in types if each.startswith("PART_")}
        done = triton.compile(ASTSource(kernel, types), target, {"enable_fp_fusion": True})
        assert len(done.asm["cubin"]) > 1000
        assert not re.search(r"\\b(atom|red)[.]", done.asm["ptx"])
        print("compiled", name, real)
"""


# Kernels whose sizes are constants.
COMPILE_SIZED = """
import re, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from scitoolkit.ops.interpolation import triton_source as interpolation
from scitoolkit.ops.neighbour_attention import triton_source as attention

table, among = interpolation.gpu_kernels("", torch.float32), attention.module()
shapes = {"W": 300, "H": 24, "LANES": 32, "EDGES": 8, "OWN": 16, "OTHER": 32, "PARTS": 4}
shapes |= {"SMOOTH": True, "ANGULAR": True}
for module, names, real in (
    (table, ("slopes_gradient",), "*fp64"),
    (table, ("values", "values_gradient"), "*fp32"),
    (among, ("forward", "edges"), "*fp32"),
    (among, ("keys",), "*fp64"),
):
    for name in names:
        kernel = getattr(module, name)
        sizes = {each: shapes[each] for each in kernel.arg_names if each in shapes}
        types = {each: "i64" if each == "N" else real for each in kernel.arg_names}
        types |= {each: "*i64" for each in ("ptr", "order", "pointer") if each in types}
        source = ASTSource(kernel, types | dict.fromkeys(sizes, "constexpr"), sizes)
        options = {"enable_fp_fusion": True}
        done = triton.compile(source, GPUTarget("cuda", 80, 32), options)
        assert not re.search(r"\\b(atom|red)[.]", done.asm["ptx"])
        print("compiled", name, real)
"""


# The environment matrix: small kernels, or with "slow" the largest ones of the default widths.
COMPILE_ENVIRONMENT = """
import os, re, torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from scitoolkit.ops.environment_matrix import EnvironmentSpec, gpu_environment, triton_source

slow = os.environ["SIZE"] == "slow"
widths = (25, 50, 100) if slow else (5, 10)
spec = EnvironmentSpec(6.0, 0.5, (46, 92), widths)
module = gpu_environment.gpu_kernels(spec, torch.float32)
indices = {"N": "i64", "pieces": "i64", "PLACES": "*i32"}
indices |= dict.fromkeys(("atoms", "segments", "types"), "*i64")
options = {"num_warps": gpu_environment.WARPS, "num_stages": 1, "enable_fp_fusion": True}
for name, real in (
    ("force_weight_gradients", "*fp32"),
    *((("moments", "*fp64"), ("moments_jvp", "*fp32")) if slow else ()),
    *(() if slow else (("edge_gradients", "*fp64"), ("table_edge_gradients", "*fp32"))),
):
    kernel = getattr(module, name)
    sizes = {each: 8 for each in kernel.arg_names if each in ("GROUP", "GROUPS")}
    types = {each: indices.get(each, real) for each in kernel.arg_names}
    types |= dict.fromkeys(sizes, "constexpr")
    source = ASTSource(kernel, types, sizes)
    done = triton.compile(source, GPUTarget("cuda", 90, 32), options)
    assert done.metadata.shared <= triton_source.shared_bytes(spec) <= 232448
    assert not re.search(r"\\b(atom|red)[.]", done.asm["ptx"])
    print("compiled", name, real)
"""


def _python(*arguments, **environment):
    root = Path(__file__).parents[3]
    inherited = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env={**inherited, **environment}, cwd=root, capture_output=True, text=True
    )


@needs_triton
@pytest.mark.parametrize("kept", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_kernels_under_the_interpreter(kept):
    kinds = (
        "kernels",
        "harmonics",
        "radial",
        "contraction",
        "graphs",
        "environment",
        "interpolation",
    )
    files = [str(Path(__file__).with_name(f"test_triton_{kind}.py")) for kind in kinds]
    options = ("-q", "-x", "-p", "no:cacheprovider", "-m", kept)
    done = _python("-m", "pytest", *options, *files, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


@needs_triton
def test_kernels_compile_for_a_gpu_with_atomics_only_where_asked_for(tmp_path):
    done = run_code(tmp_path, COMPILE, TRITON_CACHE_DIR=str(tmp_path))
    assert done.code == 0, done.err[-2000:]
    assert done.out.count("compiled") == 12


@needs_triton
def test_kernels_on_rows_compile_for_a_gpu(tmp_path):
    done = run_code(tmp_path, COMPILE_ROWS, TRITON_CACHE_DIR=str(tmp_path))
    assert done.code == 0, done.err[-2000:]
    assert done.out.count("compiled") == 18


@needs_triton
def test_kernels_on_sparse_rows_compile_for_a_gpu_without_atomics(tmp_path):
    done = run_code(tmp_path, COMPILE_SEGMENTS, TRITON_CACHE_DIR=str(tmp_path))
    assert done.code == 0, done.err[-2000:]
    assert done.out.count("compiled") == 8


@needs_triton
def test_kernels_of_constant_sizes_compile_for_a_gpu_without_atomics(tmp_path):
    done = run_code(tmp_path, COMPILE_SIZED, TRITON_CACHE_DIR=str(tmp_path))
    assert done.code == 0, done.err[-2000:]
    assert done.out.count("compiled") == 6


@needs_triton
@pytest.mark.parametrize(
    ("size", "count"), [("small", 3), pytest.param("slow", 3, marks=pytest.mark.slow)]
)
def test_kernels_of_the_environment_matrix_compile_and_fit_into_shared_memory(
    tmp_path, size, count
):
    done = run_code(tmp_path, COMPILE_ENVIRONMENT, SIZE=size, TRITON_CACHE_DIR=str(tmp_path))
    assert done.code == 0, done.err[-2000:]
    assert done.out.count("compiled") == count


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_tensors_on_cuda_get_the_reference():
    """As tracers have them: fake tensors on a device that the machine lacks."""
    from scitoolkit.ops.codegen.backends import Triton
    from scitoolkit.ops.spmm.public import SPMM

    assert "no GPU is visible" in Triton.refusal(SPMM.name, "3", torch.float32, "cuda")


def _tiny(**options):
    spec = TensorProductSpec.channelwise("4x0e", "0e", "0e")
    edges = Edges.build(torch.tensor([0]), torch.tensor([1]), 2)
    tensors = (torch.ones(2, 4), torch.ones(1, 1), torch.ones(1, 4))
    return tensor_product_convolution(spec, *tensors, edges, **options)


def test_on_a_cpu_all_is_deterministic():
    assert torch.equal(_tiny(deterministic=False), _tiny())


@pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter takes tensors on the CPU"
)
def test_triton_refuses_tensors_on_the_cpu():
    with pytest.raises(BackendError, match=r"TRITON_INTERPRET=1|pip install triton"):
        _tiny(backend="triton")


def test_without_triton_a_gpu_gets_the_reference(monkeypatch):
    """What is decided for tensors on cuda; nothing runs there."""
    from scitoolkit.ops.codegen import gpu
    from scitoolkit.ops.codegen.backends import Triton
    from scitoolkit.ops.tensor_product import public

    monkeypatch.setattr(gpu, "triton_version", lambda: "")
    spec = TensorProductSpec.channelwise("3x0e", "0e", "0e")
    reason = Triton.refusal(public.OPERATION.name, spec.text, torch.float32, "cuda")
    assert "triton is not installed" in reason
    assert "pip install triton" in reason


def test_gradients_of_senders_have_an_order_of_their_own():
    edges = Edges.build(torch.tensor([2, 0, 2, 0]), torch.tensor([0, 1, 1, 0]), 3)
    ptr, order = edges.by_sender
    assert ptr.tolist() == [0, 2, 2, 4]
    assert order.tolist() == [1, 3, 0, 2]
