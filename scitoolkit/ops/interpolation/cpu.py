"""Generator of the C kernels of piecewise polynomials, parallel over intervals.

A block of columns of an interval's coefficients stays in the L1 cache during the loop over the
interval's edges. One thread writes all rows of an interval's edges and the gradient of its
coefficients.
"""

from __future__ import annotations

from scitoolkit.ops.codegen.emit import banner
from scitoolkit.ops.interpolation.grid import NUM_COEFFICIENTS

FIRST_CACHE = 16 << 10  # bytes of the L1 cache for a block of coefficients

SOURCE = """
#include <stdint.h>
#include <string.h>
typedef int64_t i64;
typedef {real} real;
#define A(k) a[(k) * W + w]
#define VALUE {value}
#define SLOPE {slope}
#define CURVE {curve}
#define BLOCK ((i64)({cache} / ({count} * sizeof(real))))
#define LOOP _Pragma("omp simd") for (i64 w = w0; w < w1; w++)
#define SUM _Pragma("omp simd reduction(+:s)") for (i64 w = w0; w < w1; w++)
#define FUNCTION(NAME, PARAMETERS, BEFORE, EDGE) \\
void NAME(i64 M, i64 W, const i64 *ptr, const i64 *order, const real *T, PARAMETERS, \\
          i64 threads) {{ \\
_Pragma("omp parallel for num_threads(threads) if(threads > 1) schedule(dynamic, 4)") \\
for (i64 i = 0; i < M; i++) {{ \\
  BEFORE \\
  for (i64 w0 = 0; w0 == 0 || w0 < W; w0 += BLOCK) {{ \\
    const i64 w1 = W - w0 < BLOCK ? W : w0 + BLOCK; \\
    for (i64 n = ptr[i]; n < ptr[i + 1]; n++) {{ \\
      const i64 e = order[n]; const real t = T[e]; EDGE }} }} }} }}
#define C ,
#define ROW const real *restrict a = CO + i*{count}*W;
#define GRADIENT real *restrict ga = GA + i*{count}*W; memset(ga, 0, {count}*W*sizeof(real));
#define G_ROW const real *restrict g = G + e*W;
FUNCTION(values, const real *CO C real *Z, ROW,
  real *restrict z = Z + e*W; LOOP z[w] = VALUE;)
FUNCTION(values_gradient, const real *G C real *GA, GRADIENT,
  G_ROW {powers} LOOP {{ const real v = g[w]; {add_values} }})
FUNCTION(slopes, const real *CO C const real *G C real *GT, ROW,
  G_ROW real s = 0; SUM s += g[w]*SLOPE; GT[e] = w0 ? GT[e] + s : s;)
FUNCTION(slopes_gradient,
  const real *CO C const real *G C const real *D C real *GG C real *GT C real *GA, ROW GRADIENT,
  G_ROW real *restrict gg = GG + e*W; const real d = D[e]; real s = 0;
  {powers} SUM {{ const real v = g[w]; gg[w] = d*SLOPE; s += v*CURVE; {add_slopes} }}
  GT[e] = w0 ? GT[e] + d*s : d*s;)
"""


def _horner(factors: list[int]) -> str:
    """Return Horner's scheme of the polynomial with the last coefficients times `factors`."""
    first = NUM_COEFFICIENTS - len(factors)
    text = f"{factors[-1]}*A({NUM_COEFFICIENTS - 1})"
    for k in reversed(range(len(factors) - 1)):
        text = f"({factors[k]}*A({first + k}) + t*({text}))"
    return text


def generate(real: str) -> str:
    """Return the C source for `real`, float or double.

    Example:
        >>> "typedef float real;" in generate("float")
        True
    """
    count = NUM_COEFFICIENTS
    powers = "t0 = 1 C t1 = t" + "".join(f" C t{k} = t{k - 1}*t" for k in range(2, count))
    add = "ga[{0}*W+w] += {1}*v;"
    title = f"piecewise polynomials of {count} coefficients: values, slopes and gradients, {real}"
    return banner(title) + SOURCE.format(
        real=real,
        count=count,
        cache=FIRST_CACHE,
        powers=f"const real {powers};",
        value=_horner([1] * count),
        slope=_horner(list(range(1, count))),
        curve=_horner([k * (k - 1) for k in range(2, count)]),
        add_values=" ".join(add.format(k, f"t{k}") for k in range(count)),
        add_slopes=" ".join(add.format(k, f"{k}*d*t{k - 1}") for k in range(1, count)),
    )
