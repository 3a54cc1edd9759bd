"""Worker in an environment with numba: a collocated nodal DG code for the 1X1V Vlasov equation.

Gauss-Lobatto nodes of degree 2 in x and v, products at the nodes: the usual fast, aliased scheme.
Upwind in x, a Lax flux in v, one pass per stage with the Runge-Kutta combination in it. Reads the
number of rounds from each line of stdin and prints the CPU seconds per degree of freedom and stage.
"""

from __future__ import annotations

import sys
import time

import numba
import numpy as np

NX, NV, STAGES = 64, 256, 12
D = np.array([[-1.5, 2.0, -0.5], [-0.5, 0.0, 0.5], [0.5, -2.0, 1.5]])
WEIGHT = 1 / 3


@numba.njit(fastmath=True, error_model="numpy")
def stage(base, f, out, a, v, ca, cb, dt, rx, rv):
    nx, nv = f.shape[0], f.shape[3]
    for x in range(nx):
        left, right = (x - 1) % nx, (x + 1) % nx
        for q in range(3):
            tau = 0.5 * abs(a[x, q])
            for p in range(3):
                for j in range(nv):
                    speed = v[p, j]
                    slope = D[q, 0] * f[x, 0, p, j] + D[q, 1] * f[x, 1, p, j]
                    slope += D[q, 2] * f[x, 2, p, j]
                    rate = -rx * speed * slope
                    if q == 0 and speed > 0:
                        jump = f[left, 2, p, j] - f[x, 0, p, j]
                        rate += rx / WEIGHT * speed * jump
                    if q == 2 and speed < 0:
                        jump = f[x, 2, p, j] - f[right, 0, p, j]
                        rate += rx / WEIGHT * speed * jump
                    slope = D[p, 0] * f[x, q, 0, j] + D[p, 1] * f[x, q, 1, j]
                    slope += D[p, 2] * f[x, q, 2, j]
                    rate -= rv * a[x, q] * slope
                    if p == 0 and j > 0:
                        jump = f[x, q, 2, j - 1] - f[x, q, 0, j]
                        rate += rv / WEIGHT * (0.5 * a[x, q] + tau) * jump
                    if p == 2 and j < nv - 1:
                        jump = f[x, q, 2, j] - f[x, q, 0, j + 1]
                        rate += rv / WEIGHT * (0.5 * a[x, q] - tau) * jump
                    value = f[x, q, p, j] + dt * rate
                    out[x, q, p, j] = ca * base[x, q, p, j] + cb * value


def start():
    """Return f, accelerations and speeds of a Landau wave."""
    nodes = np.array([-1.0, 0.0, 1.0])
    hx, hv = 4 * np.pi / NX / 2, 6.0 / NV
    x = hx * (2 * np.arange(NX)[:, None] + 1 + nodes)
    v = hv * (2 * np.arange(NV)[None, :] + 1 + nodes[:, None]) - 6.0
    wave = 1 + 1e-2 * np.cos(0.5 * x)
    f = wave[:, :, None, None] * np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi)
    return f, 1e-2 * np.sin(0.5 * x), v, hx, hv


def check(f, a, v, hx, hv):
    """Compare a stage without field with the exact derivative: the code must be right."""
    out = np.empty_like(f)
    stage(f, f, out, 0 * a, v, 0.0, 1.0, 1e-6, 1 / hx, 1 / hv)
    x = hx * (2 * np.arange(NX)[:, None] + 1 + np.array([-1.0, 0.0, 1.0]))
    slope = -0.5e-2 * np.sin(0.5 * x)
    exact = -v * slope[:, :, None, None] * np.exp(-(v**2) / 2) / np.sqrt(2 * np.pi)
    assert np.abs((out - f) / 1e-6 - exact).max() < 1e-2 * np.abs(exact).max()


def main():
    f, a, v, hx, hv = start()
    check(f, a, v, hx, hv)
    a_buf, b_buf = np.empty_like(f), np.empty_like(f)
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.process_time()
        for _ in range(STAGES // 3):
            stage(f, f, a_buf, a, v, 0.0, 1.0, 1e-6, 1 / hx, 1 / hv)
            stage(f, a_buf, b_buf, a, v, 0.75, 0.25, 1e-6, 1 / hx, 1 / hv)
            stage(f, b_buf, a_buf, a, v, 1 / 3, 2 / 3, 1e-6, 1 / hx, 1 / hv)
            f, a_buf = a_buf, f
        print((time.process_time() - begin) / STAGES / f.size, flush=True)


if __name__ == "__main__":
    main()
