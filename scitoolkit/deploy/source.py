"""Generation of the C file of a surrogate: weights, functions, loop over samples and checks."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import facts_in_c, interface, memory, tiles, trace
from scitoolkit.deploy.agreement import in_order
from scitoolkit.deploy.bits import tiles as bit_tiles
from scitoolkit.deploy.bits.codes import Uniform
from scitoolkit.deploy.builder import ALIGN, Builder, Processor
from scitoolkit.deploy.lowering.elementwise import literal
from scitoolkit.deploy.text_in_c import text_in_c
from scitoolkit.deploy.values import C_TYPES, Buffer, contiguous, numel
from scitoolkit.ops.codegen.compile import read

BLOCK = 16
"""Samples of a block, for which each weight is read once."""
SMALL = 2_000_000
"""Largest number of multiply-adds of a sample for which samples are computed in blocks."""
LITERAL = 8_000_000
"""Largest number of bytes of weights in the code; more are in a file beside it."""
READ_ONCE = 5
"""Largest ratio of multiply-adds to stored numbers for which reading quantised weights dominates
the time of a sample, so that blocks are faster at any size."""
FLAGS = (
    *("-std=gnu11", "-O3", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno"),
    *("-fno-trapping-math", "-fno-semantic-interposition", "-fPIC", "-w"),
)


@dataclass(frozen=True)
class ExportedSource:
    """The files of an exported surrogate.

    Attributes:
        code: the C file.
        header: the C header.
        module: the Fortran module.
        about: the description that `NAME_about` returns; for separate weights without units and
            boxes, which differ between surrogates of one architecture.
        checksum: of weights and code.
        work: multiply-adds of a call of one sample.
        weights: the constants, if they are passed with each call or a file beside the code.
        weight_bytes: size of all constants.
        used: keys of the quantised matrices in use.
        operators: names of the operators of each function.
    """

    code: str
    header: str
    module: str
    about: dict[str, Any]
    checksum: int
    work: int
    weights: bytes
    weight_bytes: int
    used: frozenset[bytes]
    operators: Sequence[frozenset[str]]


def generate(
    name: str,
    functions: Sequence[TracedFunction],
    target: Processor,
    coded: Mapping[bytes, Uniform] | None = None,
    *,
    apart: bool = False,
    bare: bool = False,
    beside: bool | None = None,
) -> ExportedSource:
    """Return the source of a surrogate.

    Args:
        name: prefix of the C functions.
        functions: of a surrogate.
        target: processor.
        coded: {`matrix_key`: codes} of quantised matrices.
        apart: leave the weights out: the first argument of every function is the address of the
            weights, aligned to 64 bytes, so that surrogates of one architecture share the code.
        beside: read the weights from `NAME.bin` when the code is compiled; by default if they are
            larger than `LITERAL`.
        bare: generate the operators of one sample only, without checks and blocks, for
            measurements.

    Raises:
        ConfigError: an unsupported operator, or a name that is not a C identifier.
    """
    reserved = re.sub("#.*", "", read(__file__, "reserved.txt")).split()
    for symbol in (name, *(interface.symbol(name, f) for f in functions)):
        if not symbol.isidentifier() or not symbol.isascii() or symbol in reserved:
            raise ConfigError(
                f"{symbol!r} is not a name for a C function",
                allowed="letters, digits and _; no name of C or its library",
                fix="-o model.c, and such names of the functions",
            )
    # Fortran limits names, of which the longest are NAME_NOT_FINITE and SYMBOL_WORKSPACE, to 63.
    longest = max([len(name) + 11, *(len(interface.symbol(name, f)) + 10 for f in functions)])
    if longest > 63:
        raise ConfigError(
            f"{name!r} is too long: Fortran needs names of {longest} letters",
            allowed=f"{len(name) - longest + 63} letters",
            fix="-o model.c",
        )
    parts = [_function(name, f, target, coded or {}, apart, bare) for f in functions]
    blob, offsets = _weights([b for part in parts for b in part.builders])
    beside = not apart and (len(blob) > LITERAL if beside is None else beside)
    about: dict[str, Any] = {
        "abi": interface.ABI,
        "functions": [_about(name, f, p) for f, p in zip(functions, parts, strict=True)],
    }
    body = "\n".join(part.text for part in parts)
    tables = "\n".join(
        f"static const int32_t {label}[{len(entries)}] = {{{', '.join(map(str, entries))}}};"
        for part in parts
        for b in part.builders
        for entries, label in b.tables.items()
    )
    kernels = sorted({t for part in parts for b in part.builders for t in b.tiles})
    bit_kernels = sorted({t for part in parts for b in part.builders for t in b.bit_tiles})
    checksum = zlib.crc32(body.encode()) << 24 ^ (len(blob) if apart else zlib.adler32(blob))
    about["checksum"] = checksum
    if apart:
        about["weights_bytes"] = len(blob)
    code = "\n".join(
        [
            f"/* {name}: a surrogate as C, generated by scitoolkit export; see {name}.h.",
            f"   Compile with: cc {' '.join(FLAGS)} -march=native -shared {name}.c -lm */",
            "#include <stdint.h>",
            "#include <tgmath.h>",
            "#ifdef _OPENMP",
            "#include <omp.h>",
            "#else",
            "static int omp_get_max_threads(void) { return 1; }",
            "static int omp_get_thread_num(void) { return 0; }",
            "#endif",
            "#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__",
            '#error "the weights are little-endian"',
            "#endif",
            tiles.prelude(target),
            read(__file__, "functions.h"),
            *(tiles.tile_source(*kernel) for kernel in kernels),
            *([read(bit_tiles.__file__, "dots.h")] if bit_kernels else []),
            *(bit_tiles.tile_source(*kernel) for kernel in bit_kernels),
            *_home(name, blob, apart, beside),
            *(
                f"#define {label} ((const {C_TYPES[str(dtype)]} *)(stk_weights + {offset}))"
                for label, (offset, dtype) in offsets.items()
            ),
            tables,
            body,
            _checks(name, checksum, None if apart else blob, common(about) if apart else about),
            *([] if apart else [facts_in_c.definitions(name, functions, interface.STATUSES)]),
            "",
        ]
    )
    scratch = [part.scratch for part in parts]
    return ExportedSource(
        code,
        interface.header(name, functions, checksum, scratch),
        interface.module(name, functions, checksum, scratch),
        about,
        checksum,
        max(part.builders[0].work for part in parts),
        blob if apart or beside else b"",
        len(blob),
        frozenset(key for part in parts for b in part.builders for key in b.used),
        [frozenset(part.builders[0].operators) for part in parts],
    )


@dataclass(frozen=True)
class _SourcePart:
    text: str
    builders: list[Builder]
    scratch: int
    blocks: bool


def _function(
    name: str,
    function: TracedFunction,
    target: Processor,
    coded: Mapping[bytes, Uniform],
    apart: bool,
    bare: bool,
) -> _SourcePart:
    """Return the C of one function: for one sample, for a block if it is faster, and the loop."""
    call = interface.symbol(name, function)
    one = _lowered(function, target, 1, f"{call}_1", coded)
    stored = sum(b.size for b in one.constants.values()) if one.used else 0
    in_blocks = not bare and one.work <= max(SMALL, READ_ONCE * stored)
    if in_blocks and apart:  # pack weights for blocks, so that they are stored once
        target = replace(target, rows=BLOCK)
        one = _lowered(function, target, 1, f"{call}_1", coded)
    sizes, builders, texts, scratch = [1], [one], [], 0
    if in_blocks:
        sizes.append(BLOCK)
        builders.append(_lowered(function, target, BLOCK, f"{call}_{BLOCK}", coded))
    for size, builder in zip(sizes, builders, strict=True):
        text, needed = _body(call, function, builder, size)
        texts.append(text)
        scratch = max(scratch, needed)
    scratch += ALIGN
    loop = _loop(name, function, sizes, scratch, one, apart, bare)
    return _SourcePart("\n".join([*texts, loop]), builders, scratch, in_blocks)


def _lowered(
    function: TracedFunction,
    target: Processor,
    samples: int,
    prefix: str,
    coded: Mapping[bytes, Uniform],
) -> Builder:
    builder = Builder(target, f"{prefix}_", coded=coded)
    examples = [
        torch.zeros(_shape(spec, samples), dtype=getattr(torch, function.dtype))
        for spec in function.inputs
    ]
    views = [
        contiguous(Buffer(f"in{k}", e.numel(), function.dtype, "input"), tuple(e.shape))
        for k, e in enumerate(examples)
    ]
    outputs = []
    for k, spec in enumerate(function.outputs):
        shape = _shape(spec, samples)
        buffer = Buffer(f"out{k}", int(np.prod(shape)), function.dtype, "output")
        outputs.append(contiguous(buffer, shape))

    def order(result: Any) -> list[Any]:
        return in_order(result, function.outputs, function.name)

    trace.lower(trace.program(function.module, examples), views, outputs, builder, order)
    return builder


def _shape(spec: ArraySpec, samples: int) -> tuple[int, ...]:
    return spec.shape if spec.shared else (samples, *spec.shape)


def _names(function: TracedFunction) -> list[tuple[str, int]]:
    """Return the names of arrays in the file, and their elements per sample (0 for shared ones)."""
    return [
        *((f"in{k}", 0 if s.shared else numel(s.shape)) for k, s in enumerate(function.inputs)),
        *((f"out{k}", numel(s.shape)) for k, s in enumerate(function.outputs)),
    ]


def _arguments(function: TracedFunction) -> str:
    return ", ".join(
        f"{'const ' if name.startswith('in') else ''}{C_TYPES[function.dtype]} *restrict {name}"
        for name, _ in _names(function)
    )


def _body(call: str, function: TracedFunction, builder: Builder, samples: int) -> tuple[str, int]:
    places, size = memory.plan(builder)
    declared = [
        f"  {C_TYPES[b.dtype]} *const {b.name} = ({C_TYPES[b.dtype]} *)(work + {offset});"
        for b, offset in places.items()
    ]
    lines = [text.replace("\n", "\n  ") for text, _ in builder.statements]
    arguments = f"{_arguments(function)}, char *work"
    return "\n".join(
        [
            f"static int {call}_of_{samples}(STK_GIVEN {arguments}) {{",
            "  int stk_refused = 0; /* an index out of range, or a division of integers by 0 */",
            *declared,
            *(f"  {line}" for line in lines),
            "  return stk_refused;",
            "}",
        ]
    ), size


def _weights(builders: Sequence[Builder]) -> tuple[bytes, dict[str, tuple[int, np.dtype]]]:
    """Return all constants in one block, each aligned and stored once, and their offsets."""
    blob, offsets, seen = bytearray(), {}, {}
    for builder in builders:
        for key, buffer in builder.constants.items():
            assert buffer.data is not None
            if key not in seen:
                seen[key] = len(blob)
                blob += buffer.data.tobytes()
                blob += b"\0" * (-len(blob) % ALIGN)
            offsets[buffer.name] = (seen[key], buffer.data.dtype)
    return bytes(blob), offsets


def weights_file(name: str) -> str:
    """Return the macro of the path of the weights beside the code of a surrogate."""
    return f"{name.upper()}_WEIGHTS_FILE"


def _home(name: str, blob: bytes, apart: bool, beside: bool) -> list[str]:
    """Return the C definition of the weights: in a file, or at the caller's address."""
    if apart:
        lines = [
            "#define STK_GIVEN const char *restrict stk_weights,",
            "#define STK_PASSED stk_weights,",
        ]
    elif beside:
        symbol, macro = f"{name}_stk_weights", weights_file(name)
        lines = [
            "#define STK_GIVEN",
            "#define STK_PASSED",
            f"#ifndef {macro}",
            f'#define {macro} "{name}.bin"',
            "#endif",
            f"#define STK_FILE {macro}",
            f"#define STK_NAME {json.dumps(symbol)}",
            read(__file__, "weights_beside.h"),
            f'extern const char {symbol}[] __attribute__((visibility("hidden")));',
            f"#define stk_weights {symbol}",
        ]
    else:
        lines = [
            "#define STK_GIVEN",
            "#define STK_PASSED",
            f"static const char stk_weights[] __attribute__((aligned({ALIGN}))) =",
            f"{_literal(blob)};",
        ]
    return [f"#define STK_BYTES {len(blob)}", *lines]


def _literal(blob: bytes) -> str:
    """Return bytes as C string literals, which compile much faster than arrays of numbers."""
    octal = [f"\\{byte:03o}" for byte in range(256)]
    lines = (blob[k : k + 96] for k in range(0, len(blob), 96))
    return "\n".join(f'"{"".join(octal[b] for b in line)}"' for line in lines) or '""'


def _guard(name: str, spec: ArraySpec, dtype: str, builder: Builder, apart: bool) -> str:
    """Return the C that checks one input of one sample and sets `status`.

    If weights are separate, the box is one of them, so that the code does not depend on it.
    """
    box, real = [], C_TYPES[dtype]
    for bound, sign in ((spec.low, "<"), (spec.high, ">")):
        if bound is None:
            continue
        with np.errstate(over="ignore"):
            values = np.broadcast_to(np.asarray(bound, dtype), spec.shape).ravel()
        if len(np.unique(values)) == 1 and not apart:
            box.append(f"(x[i] {sign} {literal(float(values[0]), dtype)})")
        else:
            box.append(f"(x[i] {sign} {builder.constant(values).buffer.name}[i])")
    text = f"  if (stk_wrong_{real}({name}, {numel(spec.shape)})) return 2;"
    if not box:
        return text
    return f"""{text}
  {{
    const {real} *x = {name};
    int outside = 0;
    #pragma omp simd reduction(|:outside)
    for (int64_t i = 0; i < {numel(spec.shape)}; i++) outside |= {" | ".join(box)};
    if (outside) status = 1;
  }}"""


def _loop(
    name: str,
    function: TracedFunction,
    sizes: Sequence[int],
    scratch: int,
    builder: Builder,
    apart: bool,
    bare: bool,
) -> str:
    """Return the exported function: a loop over blocks of samples, with threads and checks."""
    call, arrays, block = interface.symbol(name, function), _names(function), sizes[-1]

    def at(first: str) -> str:
        return ", ".join(f"{n} + ({first}) * {size}" for n, size in arrays)

    guards = "\n".join(
        _guard(f"in{k}", s, function.dtype, builder, apart)
        for k, s in enumerate(function.inputs)
        if not bare
    )
    finite = "\n".join(
        f"  wrong |= stk_wrong_{C_TYPES[function.dtype]}({n}, {size});"
        for n, size in arrays
        if not bare and n.startswith("out")
    )
    lost = "\n".join(
        f"    for (int64_t i = 0; i < {size}; i++) {n}[(first + k) * {size} + i] = NAN;"
        for n, size in arrays
        if n.startswith("out")
    )
    together = (
        f"if (count == {block} && !{call}_of_{block}(STK_PASSED {at('first')}, work)) alone = 0;"
    )
    own = ", ".join(n for n, _ in arrays)
    count = f"samples - b * {block} < {block} ? samples - b * {block} : {block}"
    run = f"{call}_block(STK_PASSED b * {block}, {count}, {own}, work, sample_status)"
    return f"""
static int {call}_before(STK_GIVEN {_arguments(function)}) {{
  int status = 0;
{guards}
  return status;
}}
static int {call}_after({_arguments(function)}) {{
  int wrong = 0;
{finite}
  return wrong;
}}
static int {call}_block(STK_GIVEN int64_t first, int64_t count, {_arguments(function)}, char *work,
                        int32_t *sample_status) {{
  int worst = 0, status[{block}];
  for (int64_t k = 0; k < count; k++) status[k] = {call}_before(STK_PASSED {at("first + k")});
  int64_t alone = count; /* also in a block with a sample that torch refuses, to find it */
  {together if block > 1 else ""}
  for (int64_t k = 0; k < alone; k++) {{
    if (!{call}_of_1(STK_PASSED {at("first + k")}, work)) continue;
{lost}
  }}
  for (int64_t k = 0; k < count; k++) {{
    if ({call}_after({at("first + k")})) status[k] = 2;
    if (status[k] > worst) worst = status[k];
    if (sample_status) sample_status[first + k] = status[k];
  }}
  return worst;
}}
int {call}(STK_GIVEN int64_t samples, {_arguments(function)}, void *workspace,
           int64_t workspace_bytes, int32_t *sample_status) {{
  int64_t threads = workspace_bytes / {scratch};
  if (threads < 1) return 3;
  if (threads > omp_get_max_threads()) threads = omp_get_max_threads();
  char *base = (char *)(((uintptr_t)workspace + {ALIGN - 1}) & ~(uintptr_t){ALIGN - 1});
  const int64_t blocks = (samples + {block - 1}) / {block};
  int worst = 0;
  if (threads == 1 || blocks < 2) {{ /* threads may share the work inside a sample */
    char *work = base;
    for (int64_t b = 0; b < blocks; b++) {{
      const int status = {run};
      if (status > worst) worst = status;
    }}
    return worst;
  }}
  #pragma omp parallel for num_threads(threads) reduction(max:worst) schedule(static)
  for (int64_t b = 0; b < blocks; b++) {{
    char *work = base + omp_get_thread_num() * (int64_t){scratch - ALIGN};
    const int status = {run};
    if (status > worst) worst = status;
  }}
  return worst;
}}"""


def _checks(name: str, checksum: int, blob: bytes | None, about: dict[str, Any]) -> str:
    """Return the functions `NAME_about` and `NAME_check`."""
    return "\n".join(
        [
            f"const char *{name}_about(void) {{ return {text_in_c(json.dumps(about))}; }}",
            f"#define STK_CHECK {name}_check",
            f"#define STK_ABI {interface.ABI}",
            f"#define STK_CHECKSUM INT64_C({checksum})",
            *([] if blob is None else [f"#define STK_ADLER {zlib.adler32(blob)}u"]),
            read(__file__, "checks.h"),
        ]
    )


def common(about: dict[str, Any]) -> dict[str, Any]:
    """Return a description without units and boxes, which differ within one architecture.

    Example:
        >>> common({"functions": [{"name": "", "inputs": [{"units": "K"}], "outputs": []}]})
        {'functions': [{'name': '', 'inputs': [{}], 'outputs': []}]}
    """
    own = ("units", "box")
    return {
        **about,
        "functions": [
            {
                **f,
                **{
                    way: [{k: v for k, v in entry.items() if k not in own} for entry in f[way]]
                    for way in ("inputs", "outputs")
                },
            }
            for f in about["functions"]
        ],
    }


def _about(name: str, function: TracedFunction, part: _SourcePart) -> dict[str, Any]:
    return {
        "name": function.name,
        "symbol": interface.symbol(name, function),
        "dtype": function.dtype,
        "inputs": [interface.described(s) for s in function.inputs],
        "outputs": [interface.described(s) for s in function.outputs],
        "workspace_bytes": part.scratch,
        "multiply_adds": part.builders[0].work,
        "blocks": part.blocks,
    }
