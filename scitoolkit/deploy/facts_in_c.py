"""Facts of the training data in exported code: a caller in C or Fortran compares its own arrays.

A surrogate is right for data like those of its training. `NAME_compare_array` compares the dims and
the unit of an array, `NAME_compare_dim` the step and direction of a dim, with what the data of the
training stated.
"""

from __future__ import annotations

from collections.abc import Sequence

from scitoolkit.core.data_facts import STEP_TOLERANCE
from scitoolkit.core.traced import TracedFunction
from scitoolkit.deploy.text_in_c import text_in_c

Arrays = Sequence[tuple[str, str, str]]
Dims = Sequence[tuple[str, float, str]]


def facts_of(functions: Sequence[TracedFunction]) -> tuple[Arrays, Dims]:
    """Return the arrays (name, dims, unit) and dims (name, signed step, unit) of functions.

    A dim whose coordinate decreases has a negative step. Dims without an even step are left out.
    """
    arrays = dict.fromkeys(
        (spec.name, ",".join(spec.dims), spec.units)
        for function in functions
        for spec in (*function.inputs, *function.outputs)
    )
    dims = dict.fromkeys(
        (dim.name, (dim.direction or 1) * dim.step.number, dim.step.unit)
        for function in functions
        if function.facts is not None
        for dim in function.facts.dims
        if dim.step is not None and dim.step.is_even
    )
    return list(arrays), list(dims)


def declarations(name: str, functions: Sequence[TracedFunction]) -> list[str]:
    """Return the lines of the C header."""
    _, dims = facts_of(functions)
    stated = [f"dim {dim}: step {step:.9g} {unit}".rstrip() for dim, step, unit in dims]
    return [
        *(f"/* {' '.join(line.split()).replace('*/', '* /')} */" for line in stated),
        "/* Compare an array or a dim of yours with the data of the training: OK, FACTS if it",
        "   differs, UNSTATED for a name that they do not have. Dims of a sample as in y,x, units",
        "   letter by letter; steps within 1 %, negative where the coordinate decreases. */",
        f"int {name}_compare_array(const char *array, const char *dims, const char *units);",
        f"int {name}_compare_dim(const char *dim, double step, const char *units);",
    ]


def definitions(name: str, functions: Sequence[TracedFunction], statuses: dict[str, int]) -> str:
    """Return the C functions."""
    arrays, dims = facts_of(functions)
    rows = ", ".join("{" + ", ".join(map(text_in_c, row)) + "}" for row in arrays)
    steps = ", ".join(
        f"{{{text_in_c(d)}, {float(step)!r}, {text_in_c(unit)}}}" for d, step, unit in dims
    )
    return f"""static int stk_same(const char *a, const char *b) {{
  for (; *a && *a == *b; a++) b++;
  return *a == *b;
}}
int {name}_compare_array(const char *array, const char *dims, const char *units) {{
  static const char *const stated[][3] = {{{rows}}};
  int status = {statuses["UNSTATED"]};
  for (int i = 0; i < {len(arrays)}; i++) {{
    if (!stk_same(stated[i][0], array)) continue;
    if (stk_same(stated[i][1], dims) && stk_same(stated[i][2], units)) return 0;
    status = {statuses["FACTS"]};
  }}
  return status;
}}
int {name}_compare_dim(const char *dim, double step, const char *units) {{
  static const struct {{ const char *name; double step; const char *units; }} stated[] =
      {{{steps or '{"", 0, ""}'}}};
  int status = {statuses["UNSTATED"]};
  for (int i = 0; i < {len(dims)}; i++) {{
    if (!stk_same(stated[i].name, dim)) continue;
    const double own = stated[i].step, change = step - own;
    const double size = {STEP_TOLERANCE!r} * (own < 0 ? -own : own);
    if (stk_same(stated[i].units, units) && change >= -size && change <= size) return 0;
    status = {statuses["FACTS"]};
  }}
  return status;
}}"""


def bindings(name: str) -> list[str]:
    """Return the lines of the Fortran interface: texts end with c_null_char."""
    lines = []
    for what, names, step in (("array", "array, dims", ""), ("dim", "dim", "step, ")):
        texts = ", ".join(f"{text}(*)" for text in (*names.split(", "), "units"))
        lines += [
            f"    integer(c_int) function {name}_compare_{what}({names}, {step}units) &",
            f"        bind(C, name='{name}_compare_{what}')",
            "      import",
            f"      character(kind=c_char), intent(in) :: {texts}",
            *(["      real(c_double), value :: step"] if step else []),
            "    end function",
        ]
    return lines
