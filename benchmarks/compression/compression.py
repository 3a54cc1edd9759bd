"""Error-bounded compression: quality at equal total bytes, never-worse, speed, damage.

Peers are compared at their best: the highest PSNR within our number of bytes (header and weights
included) over a fine grid of bounds, since their sizes are not monotone in the bound. The figures
cover every shipped 3-D field of at least 64³ points; $SCITOOLKIT_FIELDS may name a folder with more
fields as .npy files (float32 or float64).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
from _places import ROOT

RELS = (1e-1, 1e-2, 1e-3, 1e-4)
GRID = 80
TRIES = 10_000
SECONDS = 10.0


def fields() -> dict[str, np.ndarray]:
    """Return the real fields by name: those shipped, and those in $SCITOOLKIT_FIELDS."""
    found = {"turbulence_64": np.load(ROOT / "datasets/turbulence_sperr/wmag_64.npy")}
    if extra := os.environ.get("SCITOOLKIT_FIELDS"):
        found |= {path.stem: np.load(path) for path in sorted(Path(extra).glob("*.npy"))}
    with h5py.File(ROOT / "datasets/nyx_small/nyx_z255_32.h5") as file:
        found |= {f"nyx_{k}": v[...] for k, v in file["native_fields"].items()}
    return found


def lognormal(n: int, seed: int = 0) -> np.ndarray:
    """Return a generated heavy-tailed field, for scale and speed alone."""
    rng = np.random.default_rng(seed)
    k = np.sqrt(
        sum(
            np.square(
                np.meshgrid(
                    np.fft.fftfreq(n, 1 / n),
                    np.fft.fftfreq(n, 1 / n),
                    np.fft.rfftfreq(n, 1 / n),
                    indexing="ij",
                    sparse=True,
                )[a]
            )
            for a in range(3)
        )
    )
    k[0, 0, 0] = 1
    wave = np.fft.rfftn(rng.standard_normal((n, n, n)).astype("f4"))
    wave *= np.sqrt(k**-2.2 * np.exp(-((k / 12) ** 2)))
    wave[0, 0, 0] = 0
    field = np.fft.irfftn(wave, (n, n, n))
    return np.exp(1.3 * field / field.std() - 0.845).astype("f4")


def compared(x: np.ndarray, **options) -> dict[str, float]:
    """Return our figures at rel 1e-2 and the peers' within the same bytes."""
    from scitoolkit.compression import compress, decompress, inspect_stream, max_error, psnr
    from scitoolkit.compression.compare import codecs_at_size

    start = time.process_time()
    stream = compress(x, rel=1e-2, objective="quality", **options)
    seconds = time.process_time() - start
    about, y = inspect_stream(stream), decompress(stream)
    peers = codecs_at_size(x, len(stream), grid=GRID)
    ours, bound = psnr(x, y), 1e-2 * (float(x.max()) - float(x.min()))
    error = np.abs(x.astype(np.float64) - y)
    return {
        "bytes": len(stream),
        "psnr": ours,
        "base": about["base"]["name"],
        "enhancer": about.get("enhancer", {}).get("name", "none"),
        "enhancer_bytes": about["sections"].get("enhancer", 0),
        "max_error_over_bound": max_error(x, y) / bound,
        "violations": int((error > bound).sum()),
        "encode_cpu_seconds": seconds,
        **{f"{k}_psnr": v if np.isfinite(v) else None for k, v in peers.items()},
        "gain_over_best_db": ours - max(peers.values()),
        "gain_over_sz3_db": ours - peers["sz3"],
    }


def never_worse(x: np.ndarray, rel: float) -> tuple[float, int]:
    """Return the best plain codec's PSNR minus that of `auto` at equal bytes, and violations."""
    from scitoolkit.compression import compress, decompress, psnr
    from scitoolkit.compression.compare import codecs_at_size

    stream = compress(x, rel=rel, objective="quality")
    y = decompress(stream)
    bound = rel * (float(x.max()) - float(x.min()))
    broken = int((np.abs(x.astype(np.float64) - y) > bound).sum())
    return max(codecs_at_size(x, len(stream)).values()) - psnr(x, y), broken


def speed(n: int = 128) -> dict[str, float]:
    """Return MB/s of CPU time: linear enhancer (fit, apply, verify; apply), codecs, all."""
    from _measure import alternate, medians

    from scitoolkit.compression import compress, decompress, dyadic
    from scitoolkit.compression.codecs.sz3 import Sz3
    from scitoolkit.compression.enhancers import linear, network_training

    x = lognormal(n)
    bound, sz3 = 1e-2 * float(np.ptp(x)), Sz3()
    stream, decoded = dyadic.encode(x, 1.5 * bound)
    packed = sz3.encode(x, bound)
    enhancer, _ = linear.fit(x, decoded, bound, 4)
    whole = compress(x, rel=1e-2, codec="dyadic", enhancer="linear")
    networks = network_training.train(x, decoded, bound, 2, 12, 0.5)

    def encode() -> None:
        made, _ = linear.fit(x, decoded, bound, 4)
        linear.largest_error(x, made.apply(decoded, bound))

    contestants = {
        "encode_mb_s": encode,
        "decode_mb_s": lambda: enhancer.apply(decoded, bound),
        "network_decode_mb_s": lambda: networks.apply(decoded, bound, bound),
        "dyadic_encode_mb_s": lambda: dyadic.encode(x, 1.5 * bound),
        "dyadic_decode_mb_s": lambda: dyadic.decode(stream, x.shape, x.dtype),
        "sz3_encode_mb_s": lambda: sz3.encode(x, bound),
        "sz3_decode_mb_s": lambda: sz3.decode(packed, x.shape, x.dtype, bound),
        "whole_decode_mb_s": lambda: decompress(whole),
    }
    alternate(contestants, 1)
    seconds = medians(alternate(contestants, 5))
    return {name: x.nbytes / 1e6 / s for name, s in seconds.items()}


def weights(n: int = 256) -> dict[str, float]:
    """Return the enhancer's share of the stream on a generated field, measured and for 512^3."""
    from scitoolkit.compression import compress, inspect_stream

    x = lognormal(n)
    sizes = {}
    for enhancer in ("linear", "network"):
        about = inspect_stream(
            compress(x, rel=1e-2, codec="dyadic", enhancer=enhancer, train_seconds=SECONDS)
        )
        share = about["sections"].get("enhancer", 0) / about["bytes"]
        sizes[f"weight_overhead_{n}_{enhancer}"] = share
        sizes[f"weight_overhead_512_{enhancer}"] = share * (n / 512) ** 3
    sizes["weight_overhead_512"] = max(v for k, v in sizes.items() if "_512_" in k)
    return sizes


def corrupt(tries: int) -> dict[str, int]:
    """Return how many damaged streams were tried, and how many gave an array or another error."""
    from scitoolkit.compression import compress, decompress
    from scitoolkit.compression.container import pack, unpack
    from scitoolkit.core.errors import ScitoolkitError

    x = np.load(ROOT / "datasets/turbulence_sperr/wmag_64.npy")[:16, :16, :16].copy()
    x[0, 0, :4] = np.nan
    made = [
        compress(x, rel=1e-2),
        compress(x, rel=1e-2, codec="sz3", enhancer="linear"),
        compress(x, rel=1e-3, codec="sperr"),
        compress(x, rel=1e-3, codec="zfp"),
        compress(x, pw_rel=1e-2),
        compress(x, abs=0),
    ]
    chance = random.Random(0)
    hostile = [
        {"shape": [1 << 40, 1 << 20]},
        {"shape": [1 << 62] * 3},
        {"shape": [-1]},
        {"dtype": "O"},
        {"base": {"name": "other"}},
        {"base": None},
        {"dtype": "V99999999999"},
        {"shape": "x"},
    ]
    silent = other = tried = 0
    while tried < tries:
        stream = chance.choice(made)
        kind = chance.randrange(6)
        data = bytearray(stream)
        if kind == 0:
            for _ in range(chance.randint(1, 8)):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[chance.randrange(len(data)) :]
        elif kind == 2:
            data[4] = chance.choice([0, *range(2, 256)])
        elif kind == 3:
            header, sections = unpack(stream)
            changed = {**header, **chance.choice(hostile)}
            data = bytearray(pack(changed, {k: bytes(v) for k, v in sections.items()}))
        elif kind == 4:
            i, j = sorted(chance.sample(range(5, len(data)), 2))
            k = chance.randint(1, max(1, min(j - i, len(data) - j)))
            data[i : i + k], data[j : j + k] = data[j : j + k], data[i : i + k]
        else:
            rival = chance.choice(made)
            cut = chance.randrange(5, len(data))
            data = data[:cut] + rival[cut:]
        if bytes(data) in made:
            continue
        tried += 1
        try:
            decompress(bytes(data))
            silent += 1
        except ScitoolkitError:
            pass
        except Exception:
            other += 1
    return {"corruptions_tried": tried, "corruptions_silent": silent, "corruptions_crashed": other}


def corruptions() -> dict[str, int]:
    """Run `corrupt` in a separate process, so that a crash is counted."""
    code = f"import json, compression as c; print(json.dumps(c.corrupt({TRIES})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"corruptions_tried": TRIES, "corruptions_silent": 0, "corruptions_crashed": 1}
    return json.loads(done.stdout.splitlines()[-1])


def run() -> dict:
    """Return all figures; see the module docstring."""
    from _measure import machine

    found: dict[str, dict] = {}
    large = {k: v for k, v in fields().items() if v.ndim == 3 and v.size >= 64**3}
    for name, x in large.items():
        found[name] = {
            "linear": compared(x, enhancer="linear"),
            "network": compared(x, enhancer="network", train_seconds=SECONDS),
        }
    losses, broken = {}, 0
    for name, x in fields().items():
        for rel in RELS:
            loss, violations = never_worse(x, rel)
            losses[f"{name} {rel:g}"] = loss
            broken += violations
    broken += sum(f[k]["violations"] for f in found.values() for k in f)
    worst = max(losses, key=lambda key: losses[key])

    def least(kind: str, figure: str) -> float:
        return min(f[kind][figure] for f in found.values())

    return {
        "gain_db_linear_min": least("linear", "gain_over_best_db"),
        "gain_db_network_min": least("network", "gain_over_best_db"),
        "gain_db_linear_over_sz3_min": least("linear", "gain_over_sz3_db"),
        "gain_db_network_over_sz3_min": least("network", "gain_over_sz3_db"),
        "auto_loss_db_max": losses[worst],
        "auto_loss_where": worst,
        "bound_violations": broken,
        **weights(),
        **speed(),
        **corruptions(),
        "fields": found,
        "auto_loss_db": losses,
        "machine": machine(),
    }
