"""Parts of a generated C file: names, weights, checks of a sample, description of the functions."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import interface
from scitoolkit.deploy.builder import ALIGN, Builder
from scitoolkit.deploy.lowering.elementwise import literal
from scitoolkit.deploy.text_in_c import text_in_c
from scitoolkit.deploy.values import C_TYPES, numel
from scitoolkit.ops.codegen.compile import read


def require_names(name: str, functions: Sequence[TracedFunction]) -> None:
    """Raise ConfigError if a function of the file `name` has no name that C and Fortran allow."""
    reserved = "|".join(re.sub("#.*", "", read(__file__, "reserved.txt")).split())
    for symbol in (name, *(interface.symbol(name, f) for f in functions)):
        if not symbol.isidentifier() or not symbol.isascii() or re.fullmatch(reserved, symbol):
            raise ConfigError(
                f"{symbol!r} is not a name for a C function",
                allowed="letters, digits and _; no name of C, C++ or their libraries",
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


def arrays_of(function: TracedFunction) -> list[tuple[str, int]]:
    """Return the names of arrays in the file, and their elements per sample (0 for shared ones)."""
    return [
        *((f"in{k}", 0 if s.shared else numel(s.shape)) for k, s in enumerate(function.inputs)),
        *((f"out{k}", numel(s.shape)) for k, s in enumerate(function.outputs)),
    ]


def arguments_of(function: TracedFunction) -> str:
    """Return the parameters of a C function for these arrays."""
    return ", ".join(
        f"{'const ' if name.startswith('in') else ''}{C_TYPES[function.dtype]} *restrict {name}"
        for name, _ in arrays_of(function)
    )


def in_one_block(builders: Sequence[Builder]) -> tuple[bytes, dict[str, tuple[int, np.dtype]]]:
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


def addresses(offsets: Mapping[str, tuple[int, np.dtype]]) -> list[str]:
    """Return the C definitions of constants at their offsets in the weights."""
    return [
        f"#define {label} ((const {C_TYPES[str(dtype)]} *)(stk_weights + {offset}))"
        for label, (offset, dtype) in offsets.items()
    ]


def weights_file(name: str) -> str:
    """Return the macro of the path of the weights beside the code of a surrogate."""
    return f"{name.upper()}_WEIGHTS_FILE"


def weights_definition(name: str, blob: bytes, apart: bool, beside: bool) -> list[str]:
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


def sample_checks(
    call: str,
    function: TracedFunction,
    builder: Builder,
    *,
    apart: bool = False,
    bare: bool = False,
) -> str:
    """Return the C of `CALL_before`, the status of a sample's inputs, and `CALL_after`, of outputs.

    Args:
        call: name of the C function.
        function: the function.
        builder: gets the limits of boxes that differ between numbers of an array.
        apart: weights, and with them all boxes, are passed with each call.
        bare: without checks, for measurements.
    """
    guards = "\n".join(
        _guard(f"in{k}", s, function.dtype, builder, apart)
        for k, s in enumerate(function.inputs)
        if not bare
    )
    finite = "\n".join(
        f"  wrong |= stk_wrong_{C_TYPES[function.dtype]}({n}, {size});"
        for n, size in arrays_of(function)
        if not bare and n.startswith("out")
    )
    return f"""static int {call}_before(STK_GIVEN {arguments_of(function)}) {{
  int status = 0;
{guards}
  return status;
}}
static int {call}_after({arguments_of(function)}) {{
  int wrong = 0;
{finite}
  return wrong;
}}"""


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


def about_definition(name: str, about: Mapping[str, Any]) -> str:
    """Return the function `NAME_about`."""
    return f"const char *{name}_about(void) {{ return {text_in_c(json.dumps(about))}; }}"


def function_description(
    name: str, function: TracedFunction, workspace_bytes: int
) -> dict[str, Any]:
    """Return what `NAME_about` tells of a function of the file `name`."""
    return {
        "name": function.name,
        "symbol": interface.symbol(name, function),
        "dtype": function.dtype,
        "inputs": [interface.described(s) for s in function.inputs],
        "outputs": [interface.described(s) for s in function.outputs],
        "workspace_bytes": workspace_bytes,
    }


def file_check(symbol: str, checksum: int, blob: bytes | None) -> str:
    """Return the function that compares header, weights and processor with the file."""
    return "\n".join(
        [
            f"#define STK_CHECK {symbol}",
            f"#define STK_ABI {interface.ABI}",
            f"#define STK_CHECKSUM INT64_C({checksum})",
            *([] if blob is None else [f"#define STK_ADLER {zlib.adler32(blob)}u"]),
            read(__file__, "checks.h"),
        ]
    )
