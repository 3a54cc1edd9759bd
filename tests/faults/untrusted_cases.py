"""Parsers of what comes from outside: HTTP requests, indices of models, plug-ins, their names."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import tempfile
import threading
import time
from functools import cache
from pathlib import Path

from format_cases import text_of, texts
from fuzzing import FolderParser, Parser

HEAD = (
    "{} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
    "Connection: close\r\n\r\n"
)
DISTRIBUTION = {
    "METADATA": "Metadata-Version: 2.1\nName: fuzzed-plugin\nVersion: 1.0\n",
    "entry_points.txt": "[scitoolkit.codec]\nfuzzed = fuzzed_plugin:Codec\n\n"
    "[scitoolkit.forecaster]\nfuzzed = fuzzed_plugin.inner:Forecaster\n\n"
    "[console_scripts]\nfuzzed = fuzzed_plugin:main\n",
    "RECORD": "fuzzed_plugin.py,,\n",
}


def http_requests(folder: Path) -> list[bytes]:
    bodies = {
        "application/json": b'{"inputs": {"x": [[0.1, 0.2, 0.3, 0.4]]}}',
        "application/x-npy": _npy_body(),
    }
    predictions = [
        HEAD.format("POST /models/m/predict?function=", kind, len(body)).encode() + body
        for kind, body in bodies.items()
    ]
    pages = ("/health", "/models", "/models/m", "/metrics", "/openapi.json")
    return predictions + [HEAD.format(f"GET {p}", "text/plain", 0).encode() for p in pages]


def _npy_body() -> bytes:
    import io

    import numpy as np

    file = io.BytesIO()
    np.save(file, np.zeros((2, 4), np.float32))
    return file.getvalue()


@cache
def _server() -> int:
    """Start a server of one surrogate in a thread of this process; return its port."""
    import torch
    import uvicorn

    from scitoolkit.core.traced import ArraySpec, TracedFunction
    from scitoolkit.deploy.export import export
    from scitoolkit.deploy.pool import Pool
    from scitoolkit.deploy.server import application

    folder = Path(tempfile.mkdtemp(dir=os.getcwd()))
    x, y = ArraySpec("x", ("a",), (4,), low=-9.0, high=9.0), ArraySpec("y", ("b",), (3,))
    export([TracedFunction(torch.nn.Linear(4, 3).eval(), [x], [y])], folder / "m.weights")
    pool = Pool("64MiB")
    pool.add("m", folder / "m.weights")
    app = application(pool, max_bytes=1 << 20, seconds=20)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return int(server.servers[0].sockets[0].getsockname()[1])


def http_request(path: Path) -> object:
    """Send the bytes of a case; raise RuntimeError for an answer that is the server's own fault."""
    with socket.create_connection(("127.0.0.1", _server()), timeout=30) as wire:
        try:
            wire.sendall(path.read_bytes())
            wire.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := wire.recv(1 << 16):
                answer += piece
        except (ConnectionResetError, BrokenPipeError):  # refused while it was sent
            return b""
    if b"HTTP/1.1 500" in answer:
        raise RuntimeError(f"answered with 500: {answer[-300:]!r}")
    return answer[:12]


def model_index(folder: Path) -> Path:
    from scitoolkit.core.model_index import add_model

    model = folder / "model"
    model.mkdir()
    for name in ("config.yaml", "weights.safetensors", "README.md"):
        (model / name).write_bytes(name.encode() * 9)
    for version in ("1.0", "1.1"):
        add_model(folder / "index", model, "flow", version, licence="CC0-1.0", facts={"a": 1})
    return folder / "index"


def read_index(root: Path) -> object:
    """Fetch the newest model of an index into an empty cache; nothing is written beside it."""
    from scitoolkit.core.model_index import open_model

    with tempfile.TemporaryDirectory(dir=root.parent) as scratch:
        os.environ["XDG_CACHE_HOME"] = str(Path(scratch) / "cache")
        before = sorted(root.parent.rglob("*"))
        try:
            opened = open_model("flow@", root)
            return sorted(p.name for p in opened.iterdir())
        finally:
            cache = Path(scratch) / "cache"
            beside = [p for p in root.parent.rglob("*") if cache not in (p, *p.parents)]
            if sorted(beside) != before:
                raise RuntimeError(f"written beside the cache: {set(beside) ^ set(before)}")


def plugin_name(path: Path) -> object:
    from scitoolkit.core.errors import ConfigError
    from scitoolkit.core.model_index import is_reference
    from scitoolkit.core.plugins import kinds

    text = text_of(path)
    is_reference(text)
    loaded = []
    for kind in kinds().values():
        try:
            loaded.append(kind.current({"name": text})["name"])
            kind.get(text)
        except ConfigError:
            loaded.pop()
    return loaded


def distribution(folder: Path) -> Path:
    site = folder / "site"
    about = site / "fuzzed_plugin-1.0.dist-info"
    about.mkdir(parents=True)
    for name, text in DISTRIBUTION.items():
        (about / name).write_text(text)
    (site / "fuzzed_plugin.py").write_text("class Codec:\n    '''A codec.'''\n")
    return site


def read_distribution(site: Path) -> object:
    """List the members of two kinds, one of which a foreign package damaged."""
    from scitoolkit.core import plugins

    sys.path.append(str(site))
    importlib.invalidate_caches()
    plugins.refresh()
    try:
        kinds = [plugins.kind(name) for name in ("codec", "forecaster")]
        names = [[member.name for member in kind.members()] for kind in kinds]
    finally:
        sys.path.remove(str(site))
        importlib.invalidate_caches()
        plugins.refresh()
    if "sz3" not in names[0] or "persistence" not in names[1]:
        raise RuntimeError(f"our own members are lost: {names}")
    return names


UNTRUSTED = {
    "http_request": Parser(http_requests, http_request, ".http"),
    "model_index": FolderParser(model_index, read_index, pattern="**/*.json"),
    "plugin_name": Parser(texts("sz3", "adamw", "persistence", "fno", "flow@1.0"), plugin_name),
    "plugin_package": FolderParser(distribution, read_distribution, pattern="*.dist-info/*"),
}
