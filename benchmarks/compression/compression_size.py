"""Bytes within an error bound: our whole stream over the smallest of SZ3, SPERR and ZFP.

Our stream is the default of `compress(x, rel=...)`, header and checksums included; the peers' bytes
are those of their plain streams, SZ3's the fewest of four shares of the bound. Missing values are
filled in advance in the same way for all. `shipped` are the fields on which the codec was tuned;
`fresh` fields were not used for tuning: convection and sea surface temperatures here, and every
.npy in the folder $SCITOOLKIT_FIELDS. Unordered lines are random numbers and a real field in random
order.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
from _places import ROOT

RELS = (1e-2, 1e-3, 1e-4)
SHARES = {"sz3": (1.0, 0.97, 0.94, 0.9)}


def without_missing(values: np.ndarray) -> np.ndarray:
    """Return a field whose missing points took the values of their nearest neighbours."""
    from scitoolkit.compression.compress import filled

    missing = ~np.isfinite(values) | (np.abs(values) > 1e15)
    clean = np.where(missing, np.float32(np.nan), values).astype(np.float32)
    return filled(clean, missing) if missing.any() else clean


def shipped() -> Iterator[tuple[str, np.ndarray]]:
    """Yield the fields that the codec was tuned on."""
    turbulence = np.load(ROOT / "datasets/turbulence_sperr/wmag_64.npy")
    yield "turbulence_64", turbulence
    yield "turbulence_slice", turbulence[31].copy()
    with h5py.File(ROOT / "datasets/nyx_small/nyx_z255_32.h5") as file:
        for name, values in file["native_fields"].items():
            yield f"nyx_{name}", values[...].astype(np.float32)
    with h5py.File(ROOT / "datasets/nemo_sst/nemo_tos_201501.nc") as file:
        yield "nemo_tos", without_missing(file["tos"][0])


def fresh() -> Iterator[tuple[str, np.ndarray]]:
    """Yield fields that took no part in tuning."""
    with h5py.File(ROOT / "datasets/rayleigh_benard/rb2d_ra1e6_pr1_s43_t20-23.75.h5") as file:
        for name in "bpuw":
            yield f"convection_{name}", file[name][...]
        yield "convection_frame", file["b"][7]
    with h5py.File(ROOT / "datasets/ersst_v5/ersstv5_monthly_2deg_201001-202008.nc") as file:
        sst = file["sst"][:24]
        yield "ersst_24_months", without_missing(sst)
        yield "ersst_month", without_missing(sst[0])
    if folder := os.environ.get("SCITOOLKIT_FIELDS"):
        for path in sorted(Path(folder).glob("*.npy")):
            yield path.stem, np.load(path)


def lines() -> Iterator[tuple[str, np.ndarray]]:
    """Yield unordered lines of values, as of particles."""
    rng = np.random.default_rng(7)
    yield "normal", rng.normal(size=200_000).astype(np.float32)
    yield "uniform", rng.uniform(0, 64, size=200_000).astype(np.float32)
    turbulence = np.load(ROOT / "datasets/turbulence_sperr/wmag_64.npy").reshape(-1)
    yield "shuffled_turbulence", rng.permutation(turbulence)


def measured(x: np.ndarray, rel: float) -> dict[str, object]:
    """Return our bytes, the peers', and the ratio; the bound is checked at every point."""
    from scitoolkit.compression import compress, decompress, inspect_stream
    from scitoolkit.compression.compare import plain_codecs

    bound = rel * (float(x.max()) - float(x.min()))
    stream = compress(x, rel=rel)
    if np.abs(x.astype(np.float64) - decompress(stream)).max() > bound:
        raise AssertionError("the bound is broken")
    peers = {
        name: min(len(codec.encode(x, bound * s)) for s in SHARES.get(name, (1.0,)))
        for name, codec in plain_codecs()[0].items()
        if not codec.refusal(x, bound)
    }
    about = inspect_stream(stream)
    return {
        "bytes": len(stream),
        "codec": about["base"]["name"],
        "peers": peers,
        "over_smallest": len(stream) / min(peers.values()),
    }


def table(fields: Iterator[tuple[str, np.ndarray]]) -> dict[str, dict[str, object]]:
    """Return the measurements of each field at each bound."""
    return {f"{name} {rel:g}": measured(x, rel) for name, x in fields for rel in RELS}


def run() -> dict:
    """Return all figures; see the module docstring."""
    from _measure import machine

    from scitoolkit.compression.compare import plain_codecs

    if plain_codecs()[1]:
        raise SystemExit(f"peers are missing: {plain_codecs()[1]}")
    found = {"shipped": table(shipped()), "fresh": table(fresh()), "lines": table(lines())}
    ratios = {
        kind: [float(row["over_smallest"]) for row in rows.values()]  # type: ignore[arg-type]
        for kind, rows in found.items()
    }
    return {
        "size_median_shipped": statistics.median(ratios["shipped"]),
        "size_worst_shipped": max(ratios["shipped"]),
        "size_median_fresh": statistics.median(ratios["fresh"]),
        "size_worst_fresh": max(ratios["fresh"]),
        "size_1d_worst": max(ratios["lines"]),
        **found,
        "machine": machine(),
    }
