"""Rungs of `make gpu`: memory and step time with compressed activations; training from a file.

`python _gpu_fields.py comet|feed`.

comet: growth of the allocator's peak over what it holds between two steps, and the median step, of
the toolkit's residual network of 50 convolutions: everything saved, checkpointing, COMET.
feed: steps per second of a U-Net on 256 x 256, batch 16, bfloat16, from HDF5, over those with a few
batches that are already on the device.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import torch
from _gpu_timing import DEVICE, SMALL, attempt, tell, wait

STEPS = 8 if SMALL else 60
BATCH = 2 if SMALL else 16


def comet() -> None:
    import _comet_models as models

    from scitoolkit.testing.loaders import TensorLoader
    from scitoolkit.training import Callback, Trainer, TrainingConfig

    width, blocks = (8, 4) if SMALL else (64, 24)
    data = models.pairs(models.TRAIN, False)

    class Watch(Callback):
        wants_every_step = True

        def __init__(self) -> None:
            self.times: list[float] = []
            self.held = 0

        def on_step(self, trainer) -> None:
            wait()
            self.times.append(time.perf_counter())
            if trainer.step == STEPS // 2 and DEVICE == "cuda":
                self.held = torch.cuda.memory_allocated()
                torch.cuda.reset_peak_memory_stats()

    def one(method: str) -> tuple[float, float]:
        torch.manual_seed(0)
        task = models.Regression(models.Emulator(width, blocks, method == "checkpointing"))
        config = TrainingConfig(
            steps=STEPS,
            batch_size=BATCH,
            progress=False,
            strategy="single",
            device=DEVICE,
            log_every=10**6,
            optimizer={"name": "adamw", "lr": 1e-3},
            memory={"activations": "comet"} if method == "comet" else None,
        )
        watch = Watch()
        Trainer(task, config, callbacks=[watch]).fit(TensorLoader(data, BATCH))
        gaps = [b - a for a, b in zip(watch.times, watch.times[1:], strict=False)]
        peak = torch.cuda.max_memory_allocated() - watch.held if DEVICE == "cuda" else 1
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
        return peak / 2**20, statistics.median(gaps[STEPS // 2 :])

    figures = {}
    for method in ("exact", "checkpointing", "comet"):
        measured = attempt(method, lambda m=method: one(m))
        if measured is not None:
            figures[method] = measured
            tell(mib={method: measured[0]}, step_ms={method: 1e3 * measured[1]})
    if {"exact", "comet"} <= figures.keys():
        tell(
            memory_ratio=figures["exact"][0] / figures["comet"][0],
            step_ratio=figures["comet"][1] / figures["exact"][1],
        )
    if {"checkpointing", "comet"} <= figures.keys():
        tell(step_over_checkpointing=figures["comet"][1] / figures["checkpointing"][1])


JOB = """
domain: emulation
data: {{path: {path}, inputs: [a, b, c, d], outputs: [a, b, c, d], sample_dim: t}}
split: {{train: {train}, validation: {spare}, test: {spare}}}
model: {{name: unet, widths: {widths}}}
training:
  steps: {steps}
  batch_size: {batch}
  precision: bf16
  device: {device}
  progress: false
  log_every: 1000000
  optimizer: {{name: adamw, lr: 1.0e-4}}
"""


def feed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _feed(Path(folder))


def _feed(folder: Path) -> None:
    import h5py
    import numpy as np

    from scitoolkit import api
    from scitoolkit.emulation.stages import prepare
    from scitoolkit.training import Callback, Trainer

    side, train, spare = (32, 48, 8) if SMALL else (256, 640, 32)
    rng = np.random.default_rng(0)
    with h5py.File(folder / "fields.h5", "w") as file:
        for name, size in (("t", train + 2 * spare), ("x", side), ("y", side)):
            scale = file.create_dataset(name, data=np.arange(size, dtype=np.float64))
            scale.make_scale(name)
        shape = (train + 2 * spare, side, side)
        for name in "abcd":
            field = file.create_dataset(name, data=rng.standard_normal(shape, np.float32))
            for axis, dim in enumerate("txy"):
                field.dims[axis].attach_scale(file[dim])
    widths = "[8, 16]" if SMALL else "[64, 128, 256]"
    text = JOB.format(
        path=folder / "fields.h5",
        train=train,
        spare=spare,
        widths=widths,
        steps=STEPS if SMALL else 160,
        batch=BATCH,
        device=DEVICE,
    )
    (folder / "train.yaml").write_text(text, encoding="utf-8")

    class Watch(Callback):
        wants_every_step = True

        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step(self, trainer) -> None:
            self.times.append(time.perf_counter())

    class Held:
        """The first batches of a loader, on the device, again and again."""

        def __init__(self, loader, batches) -> None:
            self._loader, self._batches = loader, batches

        def __getattr__(self, name):
            return getattr(self._loader, name)

        def set_epoch(self, epoch):
            self._loader.set_epoch(epoch)

        def state_dict(self):
            return self._loader.state_dict()

        def load_state_dict(self, state):
            self._loader.load_state_dict(state)

        def __len__(self):
            return len(self._loader)

        def __iter__(self):
            for number in range(len(self._loader)):
                yield self._batches[number % len(self._batches)]

    def rate(held: bool) -> float:
        _, config = api.load(str(folder / "train.yaml"))
        job = prepare(config)
        loader = job.loaders["train"]
        if held:
            few = [batch for _, batch in zip(range(4), loader, strict=False)]
            loader = Held(
                loader,
                [
                    {k: v.to(DEVICE) if isinstance(v, torch.Tensor) else v for k, v in b.items()}
                    for b in few
                ],
            )
        watch = Watch()
        Trainer(job.task, config.training, callbacks=[watch]).fit(loader)
        wait()
        half = len(watch.times) // 2
        return (len(watch.times) - half) / (time.perf_counter() - watch.times[half - 1])

    rates = {}
    for name, held in (("device", True), ("file", False), ("device again", True)):
        measured = attempt(name, lambda h=held: rate(h))
        if measured is not None:
            rates[name] = measured
            tell(steps_per_second={name: measured})
    if "file" in rates and len(rates) > 1:
        tell(share=rates["file"] / max(v for k, v in rates.items() if k != "file"))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    {"comet": comet, "feed": feed}[sys.argv[1]]()
