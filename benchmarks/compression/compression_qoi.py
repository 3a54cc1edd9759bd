"""Bounds on quantities of interest: violations over random cases, and bytes compared with a peer.

`qoi_violations` counts points over 10,000 random cases (`_quantity_cases`) at which a quantity,
evaluated in numpy, differs by more than its bound. `qoi_size_ratio` is the median over cases of the
size of our streams, headers included, over the fewest bytes of compression-safeguards with SZ3: its
streams at the best of a grid of bounds plus the corrections of decoded values, without headers.
Derivatives are central differences at the inner points for the peer, at all points for us.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from _places import PEERS, ROOT

PEER = PEERS / "safeguards" / "bin" / "python"
NUM_CASES = 10_000
RELS = (1e-2, 1e-3)
# Bounds that SZ3 is tried with, in units of the tolerance over what a quantity amplifies an error.
SHARES = (0.25, 0.35, 0.5, 0.58, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0, 3.0)


@dataclass(frozen=True)
class Comparison:
    """Fields, a quantity of them for us and for the peer.

    Args:
        fields: variable -> array.
        ours: the expression.
        theirs: the same for the stacked fields; X[variable] or X[variable, neighbours...].
        reach: neighbours along each axis of a field that the peer's expression has.
        gain: by how much an error of a field is amplified at most.
    """

    fields: dict[str, np.ndarray]
    ours: str
    theirs: str
    reach: tuple[int, ...]
    gain: float


def comparisons() -> Iterator[tuple[str, Comparison]]:
    """Yield the fields and quantities that are compared."""
    with h5py.File(ROOT / "datasets/nyx_small/nyx_z255_32.h5") as file:
        group = file["native_fields"]
        velocity = {n: group[f"velocity_{c}"][()].astype(np.float32) for n, c in zip("uvw", "xyz")}  # noqa: B905
    yield (
        "nyx_speed",
        Comparison(
            velocity,
            "sqrt(u^2 + v^2 + w^2)",
            "sqrt(square(X[0]) + square(X[1]) + square(X[2]))",
            (0, 0, 0),
            3**0.5,
        ),
    )
    yield (
        "nyx_vorticity_z",
        Comparison(
            {"u": velocity["u"], "v": velocity["v"]},
            "vorticity(u, v)",
            "(X[1,1,2] - X[1,1,0] - X[0,2,1] + X[0,0,1]) / 2",
            (0, 1, 1),
            2.0,
        ),
    )
    turbulence = np.load(ROOT / "datasets/turbulence_sperr/wmag_64.npy").astype(np.float32)
    turbulence = turbulence[16:48, 16:48, 16:48].copy()  # all of it takes the peer an hour
    yield (
        "turbulence_gradient",
        Comparison(
            {"t": turbulence},
            "gradient(t)",
            "sqrt(square(X[0,2,1,1] - X[0,0,1,1]) + square(X[0,1,2,1] - X[0,1,0,1])"
            " + square(X[0,1,1,2] - X[0,1,1,0])) / 2",
            (1, 1, 1),
            3**0.5,
        ),
    )
    with h5py.File(ROOT / "datasets/rayleigh_benard/rb2d_ra1e6_pr1_s43_t20-23.75.h5") as file:
        flow = {name: file[name][...].astype(np.float32) for name in "uw"}
        frame = {name: values[7].copy() for name, values in flow.items()}
        buoyancy = file["b"][...].astype(np.float32)
    yield (
        "convection_flux",
        Comparison(
            {"b": buoyancy, "w": flow["w"]},
            "b*w",
            "X[0] * X[1]",
            (0, 0, 0),
            float(np.abs(buoyancy).max() + np.abs(flow["w"]).max()),
        ),
    )
    yield (
        "convection_divergence",
        Comparison(
            frame,
            "divergence(u, w)",
            "(X[0,1,2] - X[0,1,0] + X[1,2,1] - X[1,0,1]) / 2",
            (1, 1),
            2.0,
        ),
    )


def measured(case: Comparison, rel: float) -> dict[str, object]:
    """Return our bytes, the peer's fewest and the ratio at one bound."""
    from scitoolkit.compression import compress_quantities, decompress
    from scitoolkit.compression.quantities import Quantity, QuantityText, grid_of

    text = f"{case.ours}: rel={rel!r}"
    streams = compress_quantities(case.fields, [text])
    original = {n: x.astype(np.float64) for n, x in case.fields.items()}
    grid = grid_of({n: x.shape for n, x in original.items()}, None, None)
    quantity = Quantity(QuantityText.read(text), grid, original)
    decoded = {n: decompress(s).astype(np.float64) for n, s in streams.items()}
    if not quantity.largest_error(quantity.evaluate(decoded))[1]:
        raise AssertionError(f"the bound of {text} is broken")
    ours, tolerance = sum(map(len, streams.values())), float(quantity.tolerance)
    theirs = safeguarded(case, tolerance)
    return {"bytes": ours, "safeguards_over_sz3": theirs, "ratio": ours / theirs}


def safeguarded(case: Comparison, tolerance: float) -> int:
    """Return the fewest bytes of SZ3 and corrections that keep a tolerance."""
    from scitoolkit.compression.codecs import codecs

    codec, stacked = codecs.get("sz3")(), np.stack(list(case.fields.values()))
    arrays, bases = {"original": stacked}, []
    for number, share in enumerate(SHARES):
        bound = share * 2 * tolerance / case.gain
        coded = [codec.encode(x, bound) for x in stacked]
        bases.append(sum(map(len, coded)))
        arrays[f"decoded_{number}"] = np.stack(
            [codec.decode(c, x.shape, x.dtype, bound) for c, x in zip(coded, stacked, strict=True)]
        )
    near = [{"axis": 0, "before": 0, "after": len(stacked) - 1, "boundary": "valid"}]
    near += [
        {"axis": axis + 1, "before": n, "after": n, "boundary": "valid"}
        for axis, n in enumerate(case.reach)
        if n
    ]
    safeguard = {
        "kind": "qoi_eb_stencil",
        "qoi": case.theirs,
        "neighbourhood": near,
        "type": "abs",
        "eb": tolerance,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/arrays.npz"
        np.savez(path, **arrays)
        found = subprocess.run(
            [PEER, Path(__file__).with_name("_safeguards_peer.py")],
            input=json.dumps({"path": path, "safeguard": safeguard}),
            capture_output=True,
            text=True,
            check=True,
        )
    corrections = json.loads(found.stdout.splitlines()[-1])
    return min(b + c for b, c in zip(bases, corrections, strict=True))


def random_cases(count: int) -> dict[str, int]:
    """Return violations, cases with loss, and cases, over random quantities."""
    from _quantity_cases import cases, violations
    from hypothesis import HealthCheck, given, settings

    total = {"qoi_violations": 0, "cases_with_loss": 0, "cases": 0}

    @settings(
        max_examples=count,
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def each(case):
        broken, lossy = violations(case)
        total["qoi_violations"] += broken
        total["cases_with_loss"] += lossy
        total["cases"] += 1
        if broken:
            print("violated:", case.text, case.own, case.objective, file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # means of missing values alone
        each()
    return total


def run() -> dict:
    """Return all figures; see the module docstring."""
    from _measure import machine

    if not PEER.exists():
        raise SystemExit(
            "compression-safeguards is missing: make .venv-peers/safeguards/.installed"
        )
    rows = {f"{name} {rel:g}": measured(case, rel) for name, case in comparisons() for rel in RELS}
    ratios = [float(row["ratio"]) for row in rows.values()]  # type: ignore[arg-type]
    return {
        **random_cases(NUM_CASES),
        "qoi_size_ratio": statistics.median(ratios),
        "qoi_size_ratio_worst": max(ratios),
        **rows,
        "machine": machine(),
    }
