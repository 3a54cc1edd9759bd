"""An epoch from a store behind a link of limited bandwidth, each of whose requests waits 100 ms.

The server is a separate process. Its bandwidth is that of one link, which all connections share
in turn, so that the bytes of the epoch over the bandwidth bound the time from below.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from _measure import machine

LATENCY, BANDWIDTH = 0.1, 32e6
"""Seconds that a request waits, and bytes per second of the link."""
ROWS, SHAPE, CHUNK_ROWS = 1024, (128, 256), 8
_BLOCK = 1 << 16


def run() -> dict:
    """Return the time of an epoch over the bandwidth bound, and of finding the store's chunks."""
    import torch  # noqa: F401, part of no epoch

    import scitoolkit
    from scitoolkit.core.remote import local_path

    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
        values = write(Path(folder) / "served" / "a.zarr")
        command = [sys.executable, __file__, f"{folder}/served"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                url = f"http://127.0.0.1:{int(server.stdout.readline())}/a.zarr"
                begin = time.perf_counter()
                local_path(url)
                listing = time.perf_counter() - begin
                campaign = scitoolkit.open_campaign(url, ["u"])
                times = {k: epoch(campaign, values, **how) for k, how in WAYS.items()}
            finally:
                server.terminate()
    bound = values.nbytes / BANDWIDTH
    return {
        "over_bound": times["default"] / bound,
        "over_bound_one_thread": times["one_thread"] / bound,
        "bound_seconds": bound,
        "chunks": ROWS // CHUNK_ROWS,
        "listing_seconds": listing,
        "machine": machine(),
    }


WAYS: dict[str, dict] = {"default": {}, "one_thread": {"threads": 1}}


def write(path: Path) -> np.ndarray:
    """Write a store with chunks of 1 MiB, and return its values."""
    import xarray as xr

    u = np.random.default_rng(0).standard_normal((ROWS, *SHAPE)).astype("f4")
    data = xr.Dataset({"u": (("time", "y", "x"), u)}, {"time": np.arange(ROWS + 0.0)})
    encoding = {"u": {"chunks": (CHUNK_ROWS, *SHAPE), "compressors": None}}
    data.to_zarr(path, encoding=encoding, zarr_format=3, consolidated=False)
    return u


def epoch(campaign, values: np.ndarray, **options: int) -> float:
    """Return the seconds of a shuffled epoch of single rows.

    Raises:
        RuntimeError: another set of rows than was written.
    """
    begin, total, rows = time.perf_counter(), 0.0, 0
    for batch in campaign.loader(batch_size=16, horizon=0, seed=1, **options):
        total += float(np.asarray(batch["x"], np.float64).sum())
        rows += len(batch["x"])
    seconds = time.perf_counter() - begin
    expected = float(values.sum(dtype=np.float64))
    if rows != ROWS or abs(total - expected) > 1e-6 * float(np.abs(values).sum(dtype=np.float64)):
        raise RuntimeError("the epoch does not have every row once")
    return seconds


class Link:
    """Bandwidth that all connections share.

    Args:
        rate: bytes per second.
    """

    def __init__(self, rate: float) -> None:
        self.rate, self._free, self._lock = rate, 0.0, threading.Lock()

    def carry(self, count: int) -> None:
        """Wait until the link has carried some bytes."""
        with self._lock:
            self._free = max(self._free, time.perf_counter()) + count / self.rate
            until = self._free
        time.sleep(max(0.0, until - time.perf_counter()))


class Handler(http.server.SimpleHTTPRequestHandler):
    """Server of files and ranges of them, on connections that stay open."""

    protocol_version = "HTTP/1.1"
    link = Link(BANDWIDTH)

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Send a file or a range of it, after the latency, at the bandwidth."""
        time.sleep(LATENCY)
        path = self.translate_path(self.path)
        if not os.path.isfile(path):
            super().do_GET()
            return
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        data = Path(path).read_bytes()
        size = len(data)
        if wanted is not None:
            first = int(wanted[1]) if wanted[1] else size - int(wanted[2])
            last = int(wanted[2]) if wanted[1] and wanted[2] else size - 1
            data = data[first : last + 1]
        self.send_response(200 if wanted is None else 206)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        for start in range(0, len(data), _BLOCK):
            block = data[start : start + _BLOCK]
            self.link.carry(len(block))
            self.wfile.write(block)


class Server(http.server.ThreadingHTTPServer):
    """Server that lets many connections wait."""

    request_queue_size = 128


def serve(folder: str) -> None:
    """Serve a folder; print the port."""
    handler = functools.partial(Handler, directory=folder)
    server = Server(("127.0.0.1", 0), handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    serve(parser.parse_args().folder)
