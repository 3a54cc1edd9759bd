"""C header and Fortran module of an exported surrogate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy import facts_in_c
from scitoolkit.deploy.values import C_TYPES

ABI = 1
"""Version of the calling convention; incremented when it changes."""
LONGEST = 50
"""Largest length of an array's name in argument names, which Fortran limits to 63 letters."""
STATUSES = {
    "OK": 0,
    "OUTSIDE": 1,
    "NOT_FINITE": 2,
    "TOO_SMALL": 3,
    "MISMATCH": 4,
    "CORRUPT": 5,
    "PROCESSOR": 6,
    "SHAPE": 7,
    "FACTS": 8,
    "UNSTATED": 9,
}
"""Return values of a call; a call of many samples returns the largest of 0, 1, 2."""
_MEANINGS = {
    "OK": "all inputs are inside the box of the training inputs",
    "OUTSIDE": "computed, but an input is outside the box of the training inputs",
    "NOT_FINITE": "an input or output is NaN or infinite",
    "TOO_SMALL": "the workspace is too small: nothing was computed",
    "MISMATCH": "library and header are of different versions or models",
    "CORRUPT": "the weights in the library are damaged",
    "PROCESSOR": "the library was compiled for another processor",
    "SHAPE": "an array of another shape (Fortran only): nothing was computed",
    "FACTS": "the training data had other dims, another unit or step",
    "UNSTATED": "the training data state nothing of this name",
}


def symbol(name: str, function: TracedFunction) -> str:
    """Return the name of the C function of a traced function."""
    return f"{name}_{function.name}" if function.name else name


def described(spec: ArraySpec, samples: int = -1) -> dict[str, Any]:
    """Return an array as JSON types: name, dims, shape, units, limits of the box.

    Args:
        spec: the array.
        samples: number of samples of a call, -1 for any.
    """
    return {
        "name": spec.name,
        "dims": [*([] if spec.shared else ["sample"]), *spec.dims],
        "shape": [*([] if spec.shared else [samples]), *map(int, spec.shape)],
        "units": spec.units,
        "box": [
            None if b is None else [float(np.min(b)), float(np.max(b))]
            for b in (spec.low, spec.high)
        ],
    }


def header(
    name: str,
    functions: Sequence[TracedFunction],
    checksum: int,
    scratch: Sequence[int],
    conduct: str = "Thread-safe: no allocation, no state between calls.",
) -> str:
    """Return the C header; `conduct` states what a call does to memory and threads."""
    big = name.upper()
    lines = [
        f"/* {name}: a surrogate written by scitoolkit export. Arrays are {functions[0].dtype}, C",
        f"   order, the sample first. {conduct} */",
        f"#ifndef {big}_H",
        f"#define {big}_H",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        f"#define {big}_ABI {ABI}",
        f"#define {big}_CHECKSUM INT64_C({checksum})",
        *(f"#define {big}_{key} {value} /* {_MEANINGS[key]} */" for key, value in STATUSES.items()),
        "/* Call once: returns 0 if library and header match and the weights are undamaged. */",
        f"int {name}_check(int abi, int64_t checksum);",
        "/* Description of all functions, JSON. */",
        f"const char *{name}_about(void);",
        *facts_in_c.declarations(name, functions),
    ]
    for function, size in zip(functions, scratch, strict=True):
        call = symbol(name, function)
        lines += [
            "",
            "/* Bytes of workspace per thread; a multiple of it enables as many threads. */",
            f"#define {call.upper()}_WORKSPACE {size}",
            *(_comment(spec, "in ") for spec in function.inputs),
            *(_comment(spec, "out") for spec in function.outputs),
            "/* sample_status: one status per sample, or NULL. Returns the largest status. */",
            f"{prototype(name, function)};",
        ]
    return "\n".join([*lines, "#ifdef __cplusplus", "}", "#endif", "#endif", ""])


def with_notes(text: str, notes: Sequence[str]) -> str:
    """Insert comments after the first comment of a header.

    Example:
        >>> with_notes("/* model */", ["changed by at most 0.1"])
        '/* model */\\n/* changed by at most 0.1 */'
    """
    first, _, rest = text.partition("*/")
    lines = "".join(f"\n/* {note.replace('*/', '* /')} */" for note in notes)
    return f"{first}*/{lines}{rest}"


def prototype(name: str, function: TracedFunction) -> str:
    """Return the C prototype of a function."""
    real = C_TYPES[function.dtype]
    arrays = [f"{'const ' if way == 'in' else ''}{real} *{n}" for _, n, way in _names(function)]
    return (
        f"int {symbol(name, function)}(int64_t samples, {', '.join(arrays)}, "
        "void *workspace, int64_t workspace_bytes, int32_t *sample_status)"
    )


def identifiers(names: Sequence[str], suffix: str) -> list[str]:
    """Return argument names for C and Fortran, distinct without regard to case.

    Example:
        >>> identifiers(["sea level", "2t", "T", "t", "θ"], "_in")
        ['sea_level_in', 'a_2t_in', 'T_in', 't_2_in', 'a___in']
    """
    unique: list[str] = []
    for name in names:
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)[:LONGEST]
        plain = plain if plain[:1].isalpha() else f"a_{plain}"
        taken, made, number = {n.lower() for n in unique}, plain + suffix, 1
        while made.lower() in taken:
            number += 1
            made = f"{plain}_{number}{suffix}"
        unique.append(made)
    return unique


def _comment(spec: ArraySpec, way: str) -> str:
    dims = [f"{d} {n}" for d, n in zip(spec.dims, spec.shape, strict=True)]
    first = [] if spec.shared else ["sample"]
    text = f"{way} {spec.name} ({', '.join([*first, *dims])}) {spec.units}"
    return f"/* {_line(text).replace('*/', '* /')} */"


def _line(text: str) -> str:
    """Return a text without line breaks, which would end a Fortran comment."""
    return " ".join(text.splitlines())


def module(
    name: str, functions: Sequence[TracedFunction], checksum: int, scratch: Sequence[int]
) -> str:
    """Return the Fortran module: bindings, and functions that check array shapes."""
    big = name.upper()
    lines = [
        f"! {name}: a surrogate written by scitoolkit export. Fortran order: the dims of the C",
        "! interface reversed, so that the sample is the last one.",
        f"module {name}_module",
        "  use, intrinsic :: iso_c_binding",
        "  implicit none",
        f"  integer(c_int), parameter :: {big}_ABI = {ABI}",
        f"  integer(c_int64_t), parameter :: {big}_CHECKSUM = {_fortran(checksum)}",
        *(
            f"  integer(c_int), parameter :: {big}_{key} = {value}  ! {_MEANINGS[key]}"
            for key, value in STATUSES.items()
        ),
        *(
            f"  integer(c_int64_t), parameter :: {symbol(name, f).upper()}_WORKSPACE = {size}"
            for f, size in zip(functions, scratch, strict=True)
        ),
        "  interface",
        f"    integer(c_int) function {name}_check(abi, checksum) bind(C, name='{name}_check')",
        "      import",
        "      integer(c_int), value :: abi",
        "      integer(c_int64_t), value :: checksum",
        "    end function",
        *facts_in_c.bindings(name),
    ]
    for f in functions:
        lines += _binding(name, f)
    lines += ["  end interface", "contains"]
    for f in functions:
        lines += _checked(name, f)
    return "\n".join([*lines, f"end module {name}_module", ""])


def _names(f: TracedFunction) -> list[tuple[ArraySpec, str, str]]:
    """Return each array with its argument name and intent, `in` or `out`."""
    return [
        (spec, name, way)
        for way, specs in (("in", f.inputs), ("out", f.outputs))
        for spec, name in zip(specs, identifiers([s.name for s in specs], f"_{way}"), strict=True)
    ]


def _real(f: TracedFunction) -> str:
    return f"real(c_{C_TYPES[f.dtype]})"


def _fortran(value: int) -> str:
    return f"{value}_c_int64_t" if value >= 0 else f"({value}_c_int64_t)"


def _wrapped(first: str, names: Sequence[str], last: str) -> list[str]:
    """Return a Fortran statement with one name per line."""
    return [f"{first} &", *(f"        {n}, &" for n in names), f"        {last}"]


def _binding(name: str, f: TracedFunction) -> list[str]:
    call, names = symbol(name, f), [n for _, n, _ in _names(f)]
    return [
        *_wrapped(
            f"    integer(c_int) function {call}_c(samples,",
            names,
            f"workspace, workspace_bytes, sample_status) bind(C, name='{call}')",
        ),
        "      import",
        "      integer(c_int64_t), value :: samples, workspace_bytes",
        *(f"      {_real(f)}, intent({way}) :: {n}(*)" for _, n, way in _names(f)),
        f"      {_real(f)} :: workspace(*)",
        "      integer(c_int32_t), intent(out), optional :: sample_status(*)",
        "    end function",
    ]


def _checked(name: str, f: TracedFunction) -> list[str]:
    call = symbol(name, f)
    names = [n for _, n, _ in _names(f)]
    own = [(s, n) for s, n, _ in _names(f) if not s.shared]
    first = own[0]
    samples = f"size({first[1]}, {len(first[0].shape) + 1})"
    lines = [
        *_wrapped(
            f"  integer(c_int) function {call}(", names, "workspace, sample_status) result(status)"
        ),
    ]
    for spec, n, way in _names(f):
        rank = len(spec.shape) + (not spec.shared)
        dims = ", ".join([*reversed(spec.dims), *(() if spec.shared else ("sample",))])
        colons = ",".join([":"] * rank) or "1"
        lines.append(
            f"    {_real(f)}, contiguous, intent({way}) :: {n}({colons})"
            f"  ! {_line(f'{spec.name} ({dims}) {spec.units}')}"
        )
    lines += [
        f"    {_real(f)}, contiguous, intent(inout) :: workspace(:)",
        "    integer(c_int32_t), contiguous, intent(out), optional :: sample_status(:)",
        f"    status = {name.upper()}_SHAPE",
    ]
    for spec, n, _ in _names(f):
        shape = [str(k) for k in reversed(spec.shape)] + ([] if spec.shared else [samples])
        lines += [
            f"    if (any(shape({n}) /= &",
            f"        [integer :: {', '.join(shape)}])) return",
        ]
    lines += [
        "    if (present(sample_status)) then; if (size(sample_status) < &",
        f"        {samples}) return; end if",
    ]
    bytes_each = np.dtype(f.dtype).itemsize
    last = f"workspace, {bytes_each}_c_int64_t * size(workspace, kind=c_int64_t), sample_status)"
    lines += [
        *_wrapped(f"    status = {call}_c(int({samples}, c_int64_t),", names, last),
        "  end function",
    ]
    return lines
