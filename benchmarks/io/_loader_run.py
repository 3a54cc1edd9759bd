"""One loader on one file: `python _loader_run.py LOADER FILE LAYOUT [key=value ...]`.

Prints one JSON object: samples and seconds of every part, requests and bytes counted by the slow
file system, and the peak resident memory. Every sample begins with its index, which is checked.
"""

from __future__ import annotations

import importlib.machinery
import json
import mmap
import os
import resource
import statistics
import struct
import sys
import time
import zlib
from collections.abc import Iterator

import h5py
import numpy as np
import torch

BATCH, SHAPE = 16, (4, 128, 128)


class Counters:
    """Counters of the slow file system, if there is one."""

    def __init__(self) -> None:
        path = os.environ.get("SLOW_STATE")
        self.memory = None
        if path:
            with open(path, "r+b") as file:
                self.memory = mmap.mmap(file.fileno(), 24)

    def read(self) -> tuple[int, int]:
        return struct.unpack("qq", self.memory[:16]) if self.memory else (0, 0)


class FileDataset(torch.utils.data.Dataset):
    """The usual data set: the file is opened on the first read in each process."""

    def __init__(self, path: str, layout: str) -> None:
        self.path, self.layout, self.data = path, layout, None
        with h5py.File(path) as file:
            self.length = len(file[layout])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.data is None:
            self.data = h5py.File(self.path)[self.layout]
        return torch.from_numpy(self.data[index])


def dataloader(path: str, layout: str, options: dict) -> Iterator[Iterator[torch.Tensor]]:
    loader = torch.utils.data.DataLoader(
        FileDataset(path, layout), BATCH, shuffle=True, num_workers=int(options["workers"])
    )
    while True:
        yield iter(loader)


def stateful(path: str, layout: str, options: dict) -> Iterator[Iterator[torch.Tensor]]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(
        FileDataset(path, layout), BATCH, shuffle=True, num_workers=int(options["workers"])
    )
    while True:
        yield iter(loader)


def streaming_package():
    """Import MosaicML Streaming without torchvision, of which no build may fit this torch."""
    import types

    class Stub(types.ModuleType):
        def __getattr__(self, name: str):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    names = (
        "torchvision",
        "torchvision.datasets",
        "torchvision.transforms",
        "torchvision.transforms.functional",
    )
    for name in names:
        sys.modules[name] = Stub(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    import streaming

    return streaming


def write_mosaic(path: str, layout: str, options: dict) -> None:
    """Convert a file to MDS, which Streaming needs."""
    import warnings

    warnings.simplefilter("ignore")
    columns = {"u": f"ndarray:float32:{','.join(map(str, SHAPE))}"}
    with streaming_package().MDSWriter(out=options["out"], columns=columns) as writer:
        with h5py.File(path) as file:
            for values in file[layout]:
                writer.write({"u": values})


def mosaic(path: str, layout: str, options: dict) -> Iterator[Iterator[torch.Tensor]]:
    dataset = streaming_package().StreamingDataset(local=path, shuffle=True, batch_size=BATCH)
    loader = torch.utils.data.DataLoader(dataset, BATCH, num_workers=int(options["workers"]))
    while True:
        yield (batch["u"] for batch in loader)


def write_zarr(path: str, layout: str, options: dict) -> None:
    """Convert a file to Zarr v3 with `rows` samples a chunk, which tensorstore needs."""
    import tensorstore as ts

    rows = int(options["rows"])
    with h5py.File(path) as file:
        data = file[layout]
        grid = {"name": "regular", "configuration": {"chunk_shape": [rows, *SHAPE]}}
        store = ts.open(
            {
                "driver": "zarr3",
                "kvstore": {"driver": "file", "path": options["out"]},
                "metadata": {
                    "shape": data.shape,
                    "data_type": "float32",
                    "chunk_grid": grid,
                    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                },
            },
            create=True,
        ).result()
        for begin in range(0, len(data), rows):
            store[begin : begin + rows].write(data[begin : begin + rows]).result()


def tensorstore(path: str, layout: str, options: dict) -> Iterator[Iterator[torch.Tensor]]:
    import tensorstore as ts

    store = ts.open(
        {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}},
        context=ts.Context({"cache_pool": {"total_bytes_limit": int(options["cache"])}}),
    ).result()

    def epoch() -> Iterator[torch.Tensor]:
        order = np.random.default_rng(0).permutation(store.shape[0]).reshape(-1, BATCH)
        ahead = [store[batch].read() for batch in order[:4]]
        for number in range(len(order)):
            values = ahead.pop(0).result()
            if number + 4 < len(order):
                ahead.append(store[order[number + 4]].read())
            yield torch.from_numpy(values)

    while True:
        yield epoch()


def ours(path: str, layout: str, options: dict) -> Iterator[Iterator[torch.Tensor]]:
    from scitoolkit.io.loader import PlannedLoader, open_source

    source = open_source(path, {"u": layout})
    loader = PlannedLoader(
        source,
        BATCH,
        buffer=int(float(options["part"]) * len(source) * source.sample_nbytes),
        threads=int(options.get("threads", 8)),
        prefetch=options.get("prefetch", "64MiB"),
    )
    options["explained"] = loader.explain()
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        yield (batch["u"] for batch in loader)
        epoch += 1


LOADERS = {f.__name__: f for f in (dataloader, stateful, mosaic, tensorstore, ours)}


class Pairs(FileDataset):
    """State and the state after it, as a plain dataset gives them."""

    def __len__(self) -> int:
        return self.length - 1

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        read = super().__getitem__
        return {"x": read(index), "y": read(index + 1)}


def train(path: str, layout: str, options: dict) -> dict:
    """Train a small network on state -> next state with our loader or a plain DataLoader."""
    from scitoolkit.io.loader import PlannedLoader, open_source

    source = open_source(path, {"x": layout, "y": layout}, frames={"y": 1})
    planned = PlannedLoader(source, 8, seed=1, buffer=len(source) * source.sample_nbytes // 4)
    order, epochs = planned.order, int(options["epochs"])

    def plain(epoch: int) -> torch.utils.data.DataLoader:
        batches = [order.global_batch(epoch, step).tolist() for step in range(order.num_batches)]
        return torch.utils.data.DataLoader(Pairs(path, layout), batch_sampler=batches)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.GELU(), torch.nn.Conv2d(4, 1, 3, padding=1)
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    begin = time.perf_counter()
    for epoch in range(epochs):
        planned.set_epoch(epoch)
        for batch in planned if options["with"] == "ours" else plain(epoch):
            loss = (model(batch["x"][:, None]) - batch["y"][:, None]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    weights = torch.cat([p.detach().ravel() for p in model.parameters()])
    return {
        "seconds": time.perf_counter() - begin,
        "loss": float(loss).hex(),
        "weights": zlib.crc32(weights.numpy().tobytes()),
    }


def cold(path: str, layout: str, options: dict) -> dict:
    """Return every loader's median rate over three epochs, each of a file that is not cached."""
    contestants = {f"w{w}": (dataloader, {"workers": w}) for w in (0, 1, 2)}
    contestants["ours"] = (ours, {"part": 0.25})
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(int(options["rounds"])):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            make, settings = contestants[name]
            epochs, rows = make(path, layout, dict(settings)), []
            for _ in range(3):
                batches = next(epochs)
                forget(path)
                rows.append(one_epoch(batches, Counters(), 10**9))
            rates[name].append(sum(r["samples"] for r in rows) / sum(r["seconds"] for r in rows))
    return {name: statistics.median(values) for name, values in rates.items()}


def forget(path: str) -> None:
    """Drop the cached pages of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


WRITERS = {f.__name__: f for f in (write_mosaic, write_zarr)}


def main() -> None:
    name, path, layout, *rest = sys.argv[1:]
    options = dict(pair.split("=", 1) for pair in rest)
    if name.startswith("write_"):
        WRITERS[name](path, layout, options)
        print("{}")
        return
    if name in ("train", "cold"):
        print(json.dumps({"train": train, "cold": cold}[name](path, layout, options)))
        return
    counters, rows = Counters(), []
    torch.zeros(1)
    epochs = LOADERS[name](path, layout, options)
    first = next(epochs)
    base = resident_bytes()
    for number in range(int(options.get("epochs", 1))):
        batches = first if number == 0 else next(epochs)
        rows.append(one_epoch(batches, counters, int(options.get("batches", 10**9))))
    print(
        json.dumps(
            {
                "epochs": rows,
                "base_bytes": base,
                "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "explained": options.get("explained"),
            }
        )
    )


def one_epoch(batches: Iterator[torch.Tensor], counters: Counters, limit: int) -> dict:
    """Run through one epoch, or `limit` batches of it."""
    before, begin, cpu = counters.read(), time.perf_counter(), time.process_time()
    seen: list[int] = []
    for number, batch in enumerate(batches, 1):
        seen += batch[:, 0, 0, 0].to(torch.int64).tolist()
        if number == limit:
            break
    seconds = time.perf_counter() - begin
    after = counters.read()
    if len(set(seen)) != len(seen):
        raise RuntimeError("a sample came twice in an epoch")
    return {
        "samples": len(seen),
        "complete": sorted(seen) == list(range(len(seen))),
        "seconds": seconds,
        "cpu_seconds": time.process_time() - cpu,
        "requests": after[0] - before[0],
        "bytes": after[1] - before[1],
    }


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    main()
