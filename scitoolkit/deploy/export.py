"""Export of a surrogate to C, compared with the surrogate before the files are written."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.files import write_together
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy import interface, pool_core
from scitoolkit.deploy.agreement import (
    SAMPLES,
    difference,
    evaluating,
    examples,
    in_dtype,
    require_separate,
    trials,
)
from scitoolkit.deploy.bits.compress import compress
from scitoolkit.deploy.build_files import build_files
from scitoolkit.deploy.builder import Processor
from scitoolkit.deploy.channels import without_dead_channels
from scitoolkit.deploy.config import ExportConfig
from scitoolkit.deploy.derivatives import require_derivatives, with_derivatives
from scitoolkit.deploy.differences import OutputDifference, differences, in_measured_box
from scitoolkit.deploy.file_parts import weights_file
from scitoolkit.deploy.library import Call, CompiledSurrogate, Library
from scitoolkit.deploy.packed import SHELL, SUFFIX, aligned, packed
from scitoolkit.deploy.random_rounding import JUMPS, RUNS, left_to_rounding
from scitoolkit.deploy.rank.lowered import Lowered, call_seconds, lowered
from scitoolkit.deploy.rank.study import with_ranks
from scitoolkit.deploy.source import BLOCK, FLAGS, SMALL, ExportedSource, generate
from scitoolkit.ops.codegen.compile import WIDE, compile_source, find_compiler, read

SUFFIXES = (".c", ".so", SUFFIX)
CALIBRATION = 256
"""Random samples for fitting a rounding, and as many others for its error, without data."""
ACTIVATIONS = {16: 2e-3, 8: 5e-2}
"""Largest difference, relative to an output, due to quantised inputs of layers, by their bits."""


def export(
    functions: Sequence[TracedFunction], path: Path, config: ExportConfig | None = None
) -> Mapping[str, Any]:
    """Write functions as `.c` or `.so`, with a C header, a Fortran module and a CMake package.

    As `.weights` for a `Pool`: writes the weights, `shell-KEY.so` with the code, which surrogates
    of one architecture in a folder share, and `scitoolkit_pool.c`, `.h` and `.f90`, the pool for
    programs in C and Fortran, and compiled for Python without a compiler.

    Args:
        functions: of a surrogate; see `Traceable`.
        path: file to write; its stem is the name of the C functions.
        config: options.

    Returns:
        `path`, `inputs` and `outputs` of the first function, `largest_difference` from the
        modules (if quantised, from modules with the same dequantised weights), `functions`,
        `weight_bytes`; `undecided` {function: text} where random rounding of all operators changes
        results by order one; `channels` {layer: [remaining, total]} if some were removed; for
        quantised or low-rank forms also `compressed` and `dense` layers and `differences` from the
        surrogate on held-out inputs; for low rank also `ranks`, `microseconds` of a call (`dense`,
        `predicted`, `measured`), `layers_time_share` by the latency table, and `pareto`, times and
        changes for other shares.

    Raises:
        ConfigError: an unsupported operator, a module that mixes samples, or other outputs than
            declared.
        BackendError: no compiler.
        NumericalError: the C code differs from the surrogate by more than `tolerance`, or a
            compressed form by more than `max_error`.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from scitoolkit.core.traced import ArraySpec
        >>> spec = ArraySpec("x", ("feature",), (3,), low=-4.0, high=4.0)
        >>> layer = TracedFunction(torch.nn.Linear(3, 3), [spec], [spec])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found = export([layer], Path(folder) / "layer.so")
        ...     (y,), status = CompiledSurrogate(found["path"])(np.zeros((2, 3), np.float32))
        >>> y.shape, status.tolist()
        ((2, 3), [0, 0])
    """
    config, path = config or ExportConfig(), Path(path)
    functions = with_derivatives(in_dtype(functions, config.dtype), config.derivatives)
    if functions[0].dtype != config.dtype:  # declared so; with the tolerance and limits of it
        options = config.model_dump(exclude_unset=True)
        config = ExportConfig(**(options | {"dtype": functions[0].dtype}))
    if path.suffix == SUFFIX and functions[0].dtype != "float32":
        raise ConfigError(
            f"dtype {functions[0].dtype} of {path.name}",
            where="export to C",
            allowed="float32 for a pool",
            fix="-o model.so",
        )
    with evaluating(functions):
        for function in functions:
            require_separate(function)
        require_derivatives(functions)
        return _written(functions, path, config)


def _written(
    functions: Sequence[TracedFunction], path: Path, config: ExportConfig
) -> Mapping[str, Any]:
    """Write functions of modules in evaluation mode; see `export`."""
    apart = path.suffix == SUFFIX
    name = SHELL if apart else path.stem
    dense, small = functions, None
    tolerance = config.allowed
    notes: dict[str, Any] = {}
    if config.channels == "remove":
        functions, told = without_dead_channels(functions)
        notes["channels"] = {r.layer: [r.channels - r.removed, r.channels] for r in told}
    whole = functions
    low = _low_rank(functions, config) if config.time_share is not None else None
    if low is not None:
        functions = low.functions
    elif config.ranks is not None:
        functions = with_ranks(functions, [calibration(f) for f in functions], config.ranks)
        notes["ranks"] = config.ranks
    if config.bits is not None:
        small = compress(functions, [calibration(f) for f in functions], config)
        functions, tolerance = small.functions, max(tolerance, ACTIVATIONS[config.input_bits])
    if functions is not whole:
        boxed = [in_measured_box(f, [calibration(f), held_out(f)[0]]) for f in dense]
        # Without data drawn again, over the whole box.
        measured = [held_out(f) for f in boxed]
        functions = [replace(f, inputs=b.inputs) for f, b in zip(functions, boxed, strict=True)]
    coded = small.coded if small else None
    beside = None if config.weights is None else config.weights == "beside"
    source = generate(name, functions, target(config), coded, apart=apart, beside=beside)
    header = source.header
    path.parent.mkdir(parents=True, exist_ok=True)
    shell = path.with_name(f"{SHELL}-{_key(source)}.so")
    with tempfile.TemporaryDirectory(prefix="scitoolkit-") as scratch:
        library = Path(scratch) / f"{name}.so"
        if apart and shell.is_file():
            made = shell.read_bytes()
        else:
            flags = (*FLAGS, "-march=native", *WIDE)
            if source.weights and not apart:
                weights = Path(scratch) / f"{name}.bin"
                weights.write_bytes(source.weights)
                flags = (*flags, f'-D{weights_file(name)}="{weights}"')
            made = compile_source(find_compiler(), source.code, flags)
        library.write_bytes(made)
        call = _caller(library, source, apart)
        compared = dense if functions is whole else functions
        largest = max(
            difference(f, call, SAMPLES + (BLOCK if a["blocks"] else 0))
            for f, a in zip(compared, source.about["functions"], strict=True)
        )
        shares = _undecided(compared, source, tolerance, largest)
        if not largest <= tolerance:
            raise NumericalError(
                f"the C code differs from the surrogate by {largest:.2g}",
                where=str(path),
                allowed=f"tolerance={tolerance:g}",
                fix="; ".join(shares.values()),
            )
        if shares:
            header = interface.with_notes(header, list(shares.values()))
            notes["undecided"] = shares
        if functions is not whole:
            changes = differences(dense, functions, call, measured)
            _refuse(changes, config)
            ways = ["low rank"] if low is not None or config.ranks is not None else []
            way = ", ".join([*ways, *([f"{config.bits} bits"] if small else [])])
            header = interface.with_notes(header, [f"{way}: {d.line()}" for d in changes])
            notes["differences"] = [d.entry() for d in changes]
        if low is not None:
            before = _compiled(Path(scratch) / "as_it_was.so", dense, config)
            after = library
            if apart:
                after = _compiled(Path(scratch) / "in_low_rank.so", functions, config)
            typical = [calibration(f) for f in dense]
            notes |= low.entry(*call_seconds([before, after], dense, typical))
        if small is not None:
            left = sorted(v for k, v in small.names.items() if k not in source.used)
            notes |= {
                "compressed": sorted(v for k, v in small.names.items() if k in source.used),
                "dense": [*small.dense, *left],
            }
    files: dict[Path, str | bytes]
    if apart:
        files = {shell: made, path: packed(_key(source), source.about, source.weights)}
        for suffix in (".h", ".c", ".f90"):  # the pool for other programs
            text = read(__file__, f"scitoolkit_pool{suffix}")
            files[path.with_name(f"scitoolkit_pool{suffix}")] = text
        files[path.with_name(pool_core.file_name())] = pool_core.portable()
    else:
        files = {
            path: source.code if path.suffix == ".c" else made,
            path.with_suffix(".h"): header,
            path.with_suffix(".f90"): source.module,
        }
        for file, text in build_files(path, interface.ABI).items():
            files[path.with_name(file)] = text
        if path.suffix == ".c" and source.weights:
            files[path.with_suffix(".bin")] = source.weights
    write_together(files)
    first = source.about["functions"][0]
    return {
        "path": str(path),
        "inputs": first["inputs"],
        "outputs": first["outputs"],
        "functions": source.about["functions"],
        "largest_difference": largest,
        "weight_bytes": source.weight_bytes,
        **notes,
    }


def _undecided(
    functions: Sequence[TracedFunction], source: ExportedSource, tolerance: float, largest: float
) -> dict[str, str]:
    """Return what rounding decides in functions whose operators jump, or in all of them.

    A judgement computes a module more than a thousand times. Large ones are judged only where they
    would be refused, by few samples.

    Args:
        functions: of modules.
        source: of their C code.
        tolerance: of the difference.
        largest: difference of the C code; all functions are judged where it is not allowed, at
            the inputs that were compared.
    """
    told = {}
    large, refused = source.work > SMALL, not largest <= tolerance
    for function, operators in zip(functions, source.operators, strict=True):
        jumps = sorted(operators & JUMPS)
        if not refused and (large or not jumps):
            continue
        sets = trials(function, SAMPLES if large else BLOCK)
        runs = 4 if large else RUNS
        share, change = left_to_rounding(function, sets if refused else sets[:1], runs)
        name, by = function.name or "the function", f" ({', '.join(jumps)})" if jumps else ""
        if share > 0:
            told[function.name] = (
                f"rounding decides {share:.2g} of the results of {name}{by}: another correct "
                "program has others"
            )
        elif refused and change > tolerance:
            told[function.name] = (
                f"tolerance={2 * max(change, largest):.1g}: rounding alone changes the results of "
                f"{name}{by} by {change:.2g}"
            )
    return told


def _caller(library: Path, source: ExportedSource, apart: bool) -> Call:
    """Return a call of the compiled library: inputs and name of a function to outputs, statuses."""
    if not apart:
        return CompiledSurrogate(library).run
    shell, weights = Library(library, SHELL), aligned(len(source.weights))
    weights[:] = np.frombuffer(source.weights, np.uint8)
    return lambda inputs, name: shell.run(inputs, name, [weights.ctypes.data])


def _key(source: ExportedSource) -> str:
    """Return a digest of the code, the compiler flags and the processor."""
    made_of = repr((source.code, FLAGS, WIDE, sorted(_macros().items())))
    return hashlib.sha256(made_of.encode()).hexdigest()[:16]


def _low_rank(functions: Sequence[TracedFunction], config: ExportConfig) -> Lowered:
    """Return functions in low rank for `config.time_share`."""
    assert config.time_share is not None
    source = generate("dense", functions, target(config))
    scratch = max(f["workspace_bytes"] for f in source.about["functions"])
    return lowered(
        functions,
        [calibration(f) for f in functions],
        config.time_share,
        config.keep,
        target(config),
        source.weight_bytes + scratch,
    )


def _compiled(path: Path, functions: Sequence[TracedFunction], config: ExportConfig) -> Path:
    """Compile a library for measurements and return its path."""
    source = generate(path.stem, functions, target(config))
    path.write_bytes(compile_source(find_compiler(), source.code, (*FLAGS, "-march=native", *WIDE)))
    return path


def _refuse(changes: Sequence[OutputDifference], config: ExportConfig) -> None:
    """Raise NumericalError if an output changed by more than `max_error`.

    Without `max_error`, if it changed to NaN or infinity on held-out inputs.
    """
    most, limited = config.max_error, config.max_error is not None
    worst = max(changes, key=lambda d: d.worst if limited else d.relative)
    most = np.finfo(np.float64).max if most is None else most
    if not (worst.worst if limited else worst.relative) <= most:
        fix = "larger ranks" if config.ranks is not None else "a larger time_share"
        fix = fix if config.bits is None else "more bits, a smaller group"
        raise NumericalError(
            worst.line(),
            where="max_error",
            allowed=f"max_error={most:g} of its range",
            fix=f"{fix}, or keep=[LAYER]",
        )


def calibration(function: TracedFunction) -> list[np.ndarray]:
    """Return inputs for fitting a compression: typical ones, or random ones from the box."""
    if function.typical:
        return [np.ascontiguousarray(a, np.float32) for a in function.typical]
    own = [len(e) for e, s in zip(function.examples, function.inputs, strict=False) if not s.shared]
    return examples(function, max(own, default=CALIBRATION), seed=1, share=1)


def held_out(function: TracedFunction) -> tuple[list[np.ndarray], str]:
    """Return inputs for the error of a compression, and their origin."""
    if function.held_out:
        return [np.ascontiguousarray(a, np.float32) for a in function.held_out], "held-out data"
    if function.examples:
        return calibration(function), "the model's own examples, not held out"
    return examples(function, CALIBRATION, seed=2, share=1), "drawn at random inside the box"


def _macros() -> dict[str, str]:
    command = [*shlex.split(find_compiler()), "-march=native", "-dM", "-E", "-x", "c", "/dev/null"]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {
        part[1]: part[-1] for part in (line.split() for line in text.splitlines()) if len(part) > 1
    }


def target(config: ExportConfig) -> Processor:
    """Return the target of the generated code: this machine, or the configured vector width."""
    macros = _macros()
    bits = config.vectors or (
        512 if "__AVX512F__" in macros else 256 if "__AVX2__" in macros else 128
    )
    return Processor(bits // 32, 32 if bits == 512 or "__aarch64__" in macros else 16)
