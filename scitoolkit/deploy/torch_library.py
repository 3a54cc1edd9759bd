"""Export to a shared library that computes by libtorch, on a GPU or a CPU.

AOTInductor compiles each function to a package. The library holds the packages and has the C
interface of generated C code: arrays on the host, boxes, statuses. It needs libtorch where it runs.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import BackendError, ConfigError, NumericalError, ScitoolkitError
from scitoolkit.core.files import write_together
from scitoolkit.core.memory import memory_errors
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy import facts_in_c, interface
from scitoolkit.deploy.agreement import (
    SAMPLES,
    difference,
    evaluating,
    examples,
    in_dtype,
    in_order,
    require_separate,
)
from scitoolkit.deploy.build_files import build_files
from scitoolkit.deploy.builder import ALIGN, Builder, Processor
from scitoolkit.deploy.config import ExportConfig, require_shared_library
from scitoolkit.deploy.file_parts import (
    about_definition,
    addresses,
    arguments_of,
    arrays_of,
    file_check,
    function_description,
    in_one_block,
    require_names,
    sample_checks,
    weights_definition,
    weights_file,
)
from scitoolkit.deploy.other_process import in_other_process
from scitoolkit.deploy.source import FLAGS
from scitoolkit.deploy.trace import require_pure
from scitoolkit.ops.codegen.compile import (
    NO_SPACE,
    WIDE,
    compile_source,
    find_compiler,
    read,
    run_compiler,
)

WORKSPACE = 64
"""Bytes of workspace of a call, of which torch uses none: it allocates its own."""
MANY = 19
"""Samples of the largest call that is compared, unless their number is fixed."""
TORCH = Path(torch.__file__).parent
SMALLER = "a smaller batch, or a smaller surrogate"
RUNNER = ("-std=c++20", "-O1", "-fPIC", "-w")


def require_tools(path: Path, device: str) -> str:
    """Return the C++ compiler after checking what an export to `path` for a device needs.

    Raises:
        ConfigError: another suffix than `.so`.
        BackendError: no GPU, no compiler, another system than Linux, or a temporary folder
            with a space in its name.
    """
    require_shared_library(path)
    if sys.platform != "linux":
        raise BackendError(
            f"device={device} on {sys.platform}", allowed="Linux", fix="leave device out"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise BackendError(
            f"torch {torch.__version__} sees no GPU",
            where="device=cuda",
            allowed="cpu on this machine",
            fix="export on the machine with the GPU, with a CUDA build of torch; -o model.onnx "
            "needs no GPU",
        )
    find_compiler()
    from torch._inductor.codecache import cache_dir
    from torch._inductor.config import cpp
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    for folder in (tempfile.gettempdir(), cache_dir()):
        if len(folder.split()) > 1:  # torch splits its commands there
            raise BackendError(
                "torch compiles in no folder with a space in its name",
                where=folder,
                fix="set TMPDIR, and TORCHINDUCTOR_CACHE_DIR if it is set, to another folder",
            )
    try:
        return get_cpp_compiler()
    except (InvalidCxxCompiler, OSError):
        searched = cpp.cxx if isinstance(cpp.cxx, tuple) else (cpp.cxx,)
        raise BackendError(
            f"no C++ compiler found (searched for {', '.join(name for name in searched if name)})",
            where=f"device={device}",
            allowed="g++ or clang++, of which CXX names one, without arguments",
            fix="install g++ or correct CXX, or leave device out, which needs a C compiler only",
        ) from None


def export_through_torch(
    functions: Sequence[TracedFunction], path: Path, config: ExportConfig
) -> Mapping[str, Any]:
    """Write functions as a `.so` that computes by libtorch, with header, Fortran module and CMake.

    Before it is written, a process without torch loads it, and its numbers and statuses are
    compared with those of the modules.

    Args:
        functions: of a surrogate.
        path: file to write, `.so`; its stem is the name of the C functions.
        config: `device`, and optionally `batch`, `dtype` and `tolerance`.

    Returns:
        `path`, `device`, `inputs` and `outputs` of the first function, `functions`,
        `largest_difference`, `package_bytes`, `libtorch`, the folder that the library looks in.

    Raises:
        ConfigError: a module that torch cannot compile, or that mixes samples.
        BackendError: no GPU or no compiler, or the library cannot be loaded.
        NumericalError: the library computes other numbers than the modules.
    """
    path, device = Path(path), config.device
    assert device is not None
    compiler = require_tools(path, device)
    require_names(path.stem, functions)
    functions = in_dtype(functions, config.dtype)
    if functions[0].dtype != config.dtype:
        config = ExportConfig(**(config.model_dump(exclude_unset=True) | {"dtype": "float64"}))
    scratch_folder = tempfile.TemporaryDirectory(prefix="scitoolkit-")
    with evaluating(functions), memory_errors(str(path), SMALLER), scratch_folder as scratch:
        for function in functions:
            require_separate(function)
        packages = [_package(f, Path(scratch) / "model.pt2", config) for f in functions]
        code, weights, about = _source(path.stem, functions, packages, config)
        library = Path(scratch) / path.name
        library.write_bytes(_compiled(Path(scratch), path.stem, code, weights, compiler, device))
        sizes = (SAMPLES, config.batch + SAMPLES) if config.batch else (1, SAMPLES, MANY)
        with in_other_process(library, str(path)) as call:
            largest = max(difference(f, call, size) for f in functions for size in sizes)
        if not largest <= config.allowed:
            raise NumericalError(
                f"the library differs from the surrogate by {largest:.2g}",
                where=str(path),
                allowed=f"tolerance={config.allowed:g}",
                fix="leave device out: the export to C tells what rounding decides",
            )
        made = library.read_bytes()
    spaces, checksum = [WORKSPACE] * len(functions), about["checksum"]
    note = (
        f"Computes on {device} by libtorch {torch.__version__}, which it needs where it runs: it "
        f"looks for it in LD_LIBRARY_PATH, then in {TORCH / 'lib'}"
    )
    way = f"{path.stem}_check loads the functions. PROCESSOR is also returned if the device fails"
    conduct = (
        "Thread-safe, one call at a time: a\n   call allocates memory, and not in the workspace."
    )
    header = interface.header(path.stem, functions, checksum, spaces, conduct)
    files: dict[str, str | bytes] = {
        path.name: made,
        f"{path.stem}.h": interface.with_notes(header, [note, way]),
        f"{path.stem}.f90": interface.module(path.stem, functions, checksum, spaces),
        **build_files(path, interface.ABI),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_together({path.with_name(name): content for name, content in files.items()})
    first = about["functions"][0]
    return {
        "path": str(path),
        "device": device,
        "inputs": first["inputs"],
        "outputs": first["outputs"],
        "functions": about["functions"],
        "largest_difference": largest,
        "package_bytes": sum(map(len, packages)),
        "libtorch": str(TORCH / "lib"),
    }


class _OwnInputs(nn.Module):
    """A module that returns its outputs in the declared order and may change its inputs."""

    def __init__(self, function: TracedFunction) -> None:
        super().__init__()
        self.module = function.module
        self._outputs, self._name = function.outputs, function.name

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        result = self.module(*(array.clone() for array in inputs))
        return tuple(in_order(result, self._outputs, self._name))


def _package(function: TracedFunction, path: Path, config: ExportConfig) -> bytes:
    """Return the package of a function, which is compiled at `path`."""
    from torch._inductor import aoti_compile_and_package
    from torch._inductor.codecache import cache_dir
    from torch.export.passes import move_to_device_pass

    traced = [torch.tensor(a) for a in examples(function, config.batch or SAMPLES)]
    samples = torch.export.Dim("samples")
    free = tuple(None if spec.shared else {0: samples} for spec in function.inputs)
    try:
        with warnings.catch_warnings(), torch.no_grad(), memory_errors(fix=SMALLER):
            warnings.simplefilter("ignore")
            program = torch.export.export(
                _OwnInputs(function),
                tuple(traced),
                dynamic_shapes=None if config.batch else {"inputs": free},
                strict=False,
            )
            require_pure(program.run_decompositions())
            if config.device == "cuda":
                program = move_to_device_pass(program, config.device)
            aoti_compile_and_package(program, package_path=str(path))
    except ScitoolkitError:
        raise
    except Exception as error:  # torch has many kinds
        if any(sign in str(error) for sign in NO_SPACE):
            raise BackendError(
                "no space left to compile the surrogate",
                where=cache_dir(),
                fix="free space there, or set TMPDIR to a folder with free space",
            ) from error
        lines = [line for line in str(error).splitlines() if "error: " in line]  # of the compiler
        text = " ".join((lines or [str(error)])[0].split())[:200]
        fix = "leave device out, for C code" if config.batch else "batch=64, samples of a block"
        fix += "; CUDA_HOME, the toolkit of CUDA" * (config.device == "cuda")
        raise ConfigError(
            f"{type(function.module).__name__} cannot be compiled ({type(error).__name__}: {text})",
            where=f"function {function.name!r} for {config.device}",
            fix=fix,
        ) from error
    return path.read_bytes()


def _source(
    name: str, functions: Sequence[TracedFunction], packages: Sequence[bytes], config: ExportConfig
) -> tuple[str, bytes, dict[str, Any]]:
    """Return the C file, the weights that it includes, with the packages, and the description."""
    builders = [Builder(Processor(), f"{interface.symbol(name, f)}_") for f in functions]
    checks = [
        sample_checks(interface.symbol(name, f), f, b)
        for f, b in zip(functions, builders, strict=True)
    ]
    weights, offsets = in_one_block(builders)
    bodies = []
    for function, check, package in zip(functions, checks, packages, strict=True):
        bodies += [check, _function(name, function, len(weights), len(package), config)]
        weights += package + b"\0" * (-len(package) % ALIGN)
    body = "\n".join(bodies)
    loads = "".join(f" || stk_torch_load(&{interface.symbol(name, f)}_torch)" for f in functions)
    checksum = zlib.crc32(body.encode()) << 24 ^ zlib.adler32(weights)
    about = {
        "abi": interface.ABI,
        "functions": [function_description(name, f, WORKSPACE) for f in functions],
        "checksum": checksum,
        "device": config.device,
        "torch": torch.__version__,
    }
    code = [
        f"/* {name}: a surrogate that libtorch computes, written by scitoolkit export. */",
        "#include <stdint.h>",
        "#include <tgmath.h>",
        read(__file__, "functions.h"),
        read(__file__, "torch_runner.h"),
        *weights_definition(name, weights, apart=False, beside=True),
        *addresses(offsets),
        body,
        about_definition(name, about),
        f'__attribute__((visibility("hidden"))) int {name}_stk_file(int, int64_t);',
        file_check(f"{name}_stk_file", checksum, weights),
        f"int {name}_check(int abi, int64_t checksum) {{",
        f"  const int status = {name}_stk_file(abi, checksum);",
        f"  return status ? status : (0{loads}) ? {interface.STATUSES['PROCESSOR']} : 0;",
        "}",
        facts_in_c.definitions(name, functions, interface.STATUSES),
        "",
    ]
    return "\n".join(code), weights, about


def _function(
    name: str, function: TracedFunction, offset: int, size: int, config: ExportConfig
) -> str:
    """Return the exported C function: a call of the package, and the checks of each sample."""
    call, arrays = interface.symbol(name, function), arrays_of(function)
    inputs, outputs = ([n for n, _ in arrays if n.startswith(way)] for way in ("in", "out"))
    specs = (*function.inputs, *function.outputs)
    described = [n for s in specs for n in (int(s.shared), len(s.shape), *s.shape)]
    at = ", ".join(f"{n} + k * {numbers}" for n, numbers in arrays)
    lost = "\n".join(
        f"    for (int64_t i = 0; i < samples * {numbers}; i++) {n}[i] = NAN;"
        for n, numbers in arrays
        if n in outputs
    )
    return f"""
static const int64_t {call}_arrays[] = {{{", ".join(map(str, described))}}};
static const stk_torch_function {call}_torch = {{
  stk_weights + {offset}, {size}, "{config.device}", {config.batch or 0},
  {int(function.dtype == "float64")}, {len(inputs)}, {len(outputs)}, {call}_arrays}};
int {call}(int64_t samples, {arguments_of(function)}, void *workspace,
           int64_t workspace_bytes, int32_t *sample_status) {{
  if (workspace_bytes < {WORKSPACE}) return 3;
  if (samples < 1) return 0;
  const void *const inputs[] = {{{", ".join(inputs)}}};
  void *const outputs[] = {{{", ".join(outputs)}}};
  const int failed = stk_torch_call(&{call}_torch, samples, inputs, outputs);
  if (failed) {{
{lost}
  }}
  int worst = failed;
  for (int64_t k = 0; k < samples; k++) {{
    int status = {call}_before({at});
    if ({call}_after({at})) status = 2;
    if (status > worst) worst = status;
    if (sample_status) sample_status[k] = status;
  }}
  return worst;
}}"""


def _compiled(
    folder: Path, name: str, code: str, weights: bytes, compiler: str, device: str
) -> bytes:
    """Return the library of the C file and of the C++ file that calls torch."""
    runner, unit, data = (folder / f"{name}.{suffix}" for suffix in ("cpp", "o", "bin"))
    texts = [read(__file__, f"torch_runner.{suffix}") for suffix in ("h", "cpp")]
    runner.write_text("\n".join(texts), encoding="utf-8")
    data.write_bytes(weights)
    include = TORCH / "include"
    arguments = (f"-I{include}", f"-I{include / 'torch/csrc/api/include'}")
    run_compiler(compiler, (*RUNNER, *arguments, "-c", str(runner), "-o", str(unit)), unit)
    libraries = ("torch", "torch_cpu", "c10", *(("torch_cuda", "c10_cuda") * (device == "cuda")))
    linked = (str(unit), f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}", "-Wl,--no-as-needed")
    flags = (*FLAGS, "-march=native", *WIDE, f'-D{weights_file(name)}="{data}"', *linked)
    flags += (*(f"-l{library}" for library in libraries), "-lstdc++")
    return compile_source(find_compiler(), code, flags)
