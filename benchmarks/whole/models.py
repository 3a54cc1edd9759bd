"""Models by name: every domain trained or shipped, published with its card, and opened by name.

Shipped surrogates are published as they are; the others are trained by the shipped workflows first.
The index is a folder, MODELS_INDEX or a temporary one, and is read through an HTTP server of this
machine with an empty cache. A model counts if its name opens, its card has training data, metrics
with date and device, and where not to use it, its facts of the training data are stored, and, where
its data are in the repository, its evaluation by name gives the metrics of its card.
"""

from __future__ import annotations

import functools
import http.server
import json
import math
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
from _places import ROOT

from scitoolkit import api
from scitoolkit.core.errors import ScitoolkitError

DATASETS = ROOT / "datasets"
VERSION, LICENCE = "1.0", "Apache-2.0"
# Shipped surrogates; rb2d_steady has no facts, since its data are not in the repository.
SHIPPED = ("sst_forecast", "rb2d_emulator", "rayleigh_benard_mfn", "mesh_diffusion", "acac_mace")
# Models whose data are not in the repository: they are opened, but not evaluated by name.
NOT_EVALUATED = ("mesh_diffusion", "cora_links")
# Name: workflow, and settings of a training of at most a minute.
TRAINED = {
    "cora_classes": ("node_classification", []),
    "huckel_energies": ("molecule_energies", []),
    "lorenz96_forecast": ("chaos", []),
    "delay_ring_forecast": ("delay_ring", []),
    "water_deepmd": ("water_deepmd", ["training.steps=200"]),
}
LINKS = """
domain: graph_links
data: {path: links.npz}
model: {name: gcn, hidden: 16, dropout: 0}
training: {epochs: 5, batch_size: 256}
"""
TOLERANCE = 1e-4  # of a metric, between two evaluations on one machine


def run() -> dict:
    """Publish all models, open them by name, and count."""
    former = dict(os.environ)
    with tempfile.TemporaryDirectory() as scratch:
        index = Path(os.environ.get("MODELS_INDEX") or Path(scratch) / "index")
        os.environ["XDG_CACHE_HOME"] = str(Path(scratch) / "cache")
        try:
            return _counted(Path(scratch), index)
        finally:
            os.environ.clear()
            os.environ.update(former)


def _counted(scratch: Path, index: Path) -> dict:
    sources = {name: ROOT / "surrogates" / name for name in SHIPPED}
    for name, (workflow, settings) in TRAINED.items():
        sources[name] = api.run(workflow, [f"run.root={scratch / 'runs'}", *settings]).path
    sources["cora_links"] = _links(scratch)
    for name, source in sources.items():
        if not (index / "models" / name / VERSION).is_dir():
            api.publish_to(source, index, f"{name}@{VERSION}", licence=LICENCE)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(index))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["SCITOOLKIT_INDEX"] = f"http://127.0.0.1:{server.server_port}"
    try:
        short = {name: why for name in sources if (why := _why_not(name))}
    finally:
        server.shutdown()
        server.server_close()
    domains = {_domain(name, index) for name in sources if name not in short}
    return {
        "models": len(sources) - len(short),
        "evaluated": len([name for name in sources if name not in {*short, *NOT_EVALUATED}]),
        "domains": len(domains),
        "domains_by_name": sorted(domains),
        "short_of": short,
        "index_mb": round(sum(f.stat().st_size for f in index.rglob("*") if f.is_file()) / 1e6, 2),
    }


def _links(scratch: Path) -> Path:
    """Train the prediction of the links of a citation graph; return the run."""
    with np.load(DATASETS / "cora" / "cora.npz") as cora:
        arrays = {name: cora[name] for name in cora.files}
    arrays.pop("y", None)
    np.savez(scratch / "links.npz", **arrays)
    (scratch / "links.yaml").write_text(LINKS, encoding="utf-8")
    return api.run(scratch / "links.yaml", [f"run.root={scratch / 'runs'}"]).path


def _why_not(name: str) -> str:
    """Return why a model does not count, or an empty text."""
    try:
        surrogate = api.load_surrogate(f"{name}@{VERSION}")
    except ScitoolkitError as error:
        return f"does not open: {error}"
    if not (surrogate.path / "facts.json").is_file():
        return "no facts of the training data"
    card = (surrogate.path / "README.md").read_text(encoding="utf-8")
    lowered = card.lower()
    for part in ("licence", "training", "limits" if "**limits" in lowered else "where not to"):
        if part not in lowered:
            return f"the card does not say: {part}"
    if name in NOT_EVALUATED:
        return ""
    stored = json.loads((surrogate.path / "metrics.json").read_text(encoding="utf-8"))
    metrics = surrogate.evaluate().metrics
    differ = [
        key
        for key, value in stored.items()
        if isinstance(value, float)
        and key in metrics
        and not math.isclose(value, metrics[key], rel_tol=TOLERANCE, abs_tol=1e-9)
    ]
    return f"another value of {differ[0]} by name" if differ else ""


def _domain(name: str, index: Path) -> str:
    entry = (index / "models" / name / VERSION / "entry.json").read_text(encoding="utf-8")
    return str(json.loads(entry)["domain"])
