"""One part of the benchmark `comet` in a separate process: `python _comet_worker.py '{...}'`.

`part` is memory (growth of the peak resident memory over the memory held between steps), errors (of
the gradient, all methods at the same weights), timing (CPU seconds per step, alternating), accuracy
(on the test part, after a training), planned or offload (live bytes and time per step).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path

import _comet_models as models
import torch
from _measure import alternate, medians
from _places import ROOT
from torch.autograd.graph import saved_tensors_hooks

from scitoolkit.ops.codegen.buffers import POOL
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Callback, Trainer, TrainingConfig
from scitoolkit.training.memory.comet import Comet
from scitoolkit.training.memory.config import MemoryConfig
from scitoolkit.training.memory.live_bytes import peak_live_bytes
from scitoolkit.training.memory.offload import Offload
from scitoolkit.training.memory.planned import PlannedMemory
from scitoolkit.training.memory.recompute import Recompute


def resident(key: str) -> int:
    """Return VmRSS or VmHWM in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) << 10
    raise KeyError(key)


def nothing_saved():
    """Store no activations: wrong gradients, but the lower bound of memory for any store."""

    def pack(x):
        if x.numel() < 4096 or (x.is_leaf and x.requires_grad):
            return x if x.is_leaf else x.detach()
        return x.shape, x.dtype

    def unpack(kept):
        return torch.zeros(kept[0], dtype=kept[1]) if isinstance(kept, tuple) else kept

    return saved_tensors_hooks(pack, unpack)


class Nothing:
    """An activation store by `nothing_saved`."""

    def saving(self, batch, finer):
        return nothing_saved()


class Rounded:
    """An activation store by a scheme of `_comet_models`."""

    def __init__(self, scheme) -> None:
        self.scheme = scheme

    def saving(self, batch, finer):
        return self.scheme.context()


class Peak(Callback):
    """Takes the resident memory between two steps as the beginning of the growth."""

    wants_every_step = True

    def on_step(self, trainer) -> None:
        if trainer.step == 1:  # weights, gradients and the optimizer's state are in memory now
            POOL.clear()
            ctypes.CDLL(None).malloc_trim(0)
            self.before = resident("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")


class Errors(Callback):
    """At some steps, compares gradients with the exact one at the same weights."""

    wants_every_step = True

    def __init__(self, task, batch, checks: set[int]) -> None:
        self.task, self.batch, self.checks = task, batch, checks
        self.whole: dict[str, list[float]] = {}
        self.layers: dict[str, list[float]] = {}
        self.ratios: list[float] = []

    def on_step(self, trainer) -> None:
        if trainer.step not in self.checks:
            return
        store = trainer.activation_store
        exact = gradients(self.task, self.batch, contextlib.nullcontext())
        contexts = {"comet": store.saving(self.batch, 1.0)}
        for bits in (2, 4):
            contexts[f"quantised{bits}"] = models.Quantised(self.task.model, bits).context()
        for name, context in contexts.items():
            kept = gradients(self.task, self.batch, context)
            error = [float((a - b).norm()) for a, b in zip(kept, exact, strict=True)]
            size = [float(b.norm()) for b in exact]
            total = sum(e * e for e in error) ** 0.5 / sum(s * s for s in size) ** 0.5
            layers = [e / s for e, s, g in zip(error, size, exact, strict=True) if g.ndim > 1]
            self.whole.setdefault(name, []).append(total)
            self.layers.setdefault(name, []).append(max(layers))
            if name == "comet":
                self.ratios.append(store.raw_bytes / store.kept_bytes)


def gradients(task, batch, context) -> list[torch.Tensor]:
    task.model.zero_grad()
    with context:
        loss, _ = task.loss(batch)
    loss.backward()
    out = [p.grad.clone() for p in task.model.parameters()]
    task.model.zero_grad()
    return out


def prepared(options: dict):
    """Return task, training data and configuration."""
    torch.set_num_threads(1)
    method, volume = options.get("method", "exact"), options["model"] == "unet3d"
    torch.manual_seed(options.get("seed", 0))
    model = models.KINDS[options["model"]](
        options["width"], options["blocks"], method == "checkpointing"
    )
    task = models.Regression(model)
    if method.startswith("quantised"):
        task.context = models.Quantised(model, int(method[-1])).context
    elif method == "nothing":
        task.context = nothing_saved
    config = TrainingConfig(
        steps=options["steps"],
        batch_size=options["batch"],
        seed=options.get("seed", 0),
        progress=False,
        strategy="single",
        device="cpu",
        log_every=10**6,
        clip_norm=1.0,
        optimizer={"name": "adamw", "lr": 1e-3},
        schedule={"name": "cosine"},
        memory={"activations": "comet"} if method == "comet" else None,
    )
    return task, models.pairs(models.TRAIN, volume), config


def memory(options: dict) -> dict:
    task, data, config = prepared(options)
    peak = Peak()
    trainer = Trainer(task, config, callbacks=[peak])
    trainer.fit(TensorLoader(data, config.batch_size))
    return {"peak_mib": (resident("VmHWM") - peak.before) / 2**20}


def errors(options: dict) -> dict:
    task, data, config = prepared({**options, "method": "comet"})
    batch = {k: v[: config.batch_size].clone() for k, v in data.items()}
    watch = Errors(task, batch, set(options["checks"]))
    trainer = Trainer(task, config, callbacks=[watch])
    trainer.fit(TensorLoader(data, config.batch_size))
    found = {
        name: {"gradient_error": max(values), "worst_layer": max(watch.layers[name])}
        for name, values in watch.whole.items()
    }
    steps = trainer.activation_store.steps
    return {**found, "packed_ratio": min(watch.ratios), "state": steps}


def timing(options: dict) -> dict:
    task, data, config = prepared(options)
    batch = {k: v[: config.batch_size].clone() for k, v in data.items()}
    rival = prepared({**options, "method": "checkpointing"})[0]
    store = Comet(task.model, TrainingConfig(memory={"activations": "comet"}).memory)
    store.load_state_dict({"steps": options["state"]})

    def stepper(task, context):
        optimizer = torch.optim.AdamW(task.model.parameters(), 1e-4)

        def step() -> None:
            optimizer.zero_grad()
            with context():
                loss, _ = task.loss(batch)
            loss.backward()
            optimizer.step()

        return step

    contestants = {
        "exact": stepper(task, contextlib.nullcontext),
        "comet": stepper(task, lambda: store.saving(batch, 1.0)),
        "checkpointing": stepper(rival, contextlib.nullcontext),
        "quantised2": stepper(task, models.Quantised(task.model, 2).context),
        "quantised4": stepper(task, models.Quantised(task.model, 4).context),
    }
    alternate(contestants, 1)
    return medians(alternate(contestants, options["rounds"]))


def accuracy(options: dict) -> dict:
    task, data, config = prepared(options)
    Trainer(task, config).fit(TensorLoader(data, config.batch_size))
    test = models.pairs(models.TEST, options["model"] == "unet3d")
    task.model.eval()
    with torch.no_grad():
        found = [
            float(task.metrics({k: v[i : i + 1] for k, v in test.items()})["loss"])
            for i in range(len(test["x"]))
        ]
    return {"points": 100 * (1 - (sum(found) / len(found)) ** 0.5)}


def warmed(options: dict):
    """Return a model after `options["warm"]` steps of AdamW, and store -> gradients of a step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = models.KINDS[options["model"]](options["width"], options["blocks"])
    data = models.pairs(models.TRAIN, options["model"] == "unet3d")
    batch = models.planned_batch(options["model"], data, options["batch"])
    task, optimizer = models.Regression(model), torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(options["warm"]):
        optimizer.zero_grad()
        task.loss(batch)[0].backward()
        optimizer.step()
    optimizer.zero_grad()
    buffers = [(b, b.clone()) for b in model.buffers()]

    def gradients(store) -> dict:
        torch.manual_seed(1)
        with store.saving(batch, 1.0):
            loss, _ = task.loss(batch)
        loss.backward()
        found = {name: p.grad for name, p in model.named_parameters()}
        for p in model.parameters():
            p.grad = None
        with torch.no_grad():
            for buffer, kept in buffers:
                buffer.copy_(kept)
        return found

    return model, gradients


def planned(options: dict) -> dict:
    """Compare the live bytes of the plan with those of checkpointing, weights and batch alike.

    Checkpointing is every block as the model does it, or the store's own plan of recomputation
    alone, whichever takes less.
    """
    wanted = MemoryConfig(activations="planned", smallest=options.get("smallest", 4096))
    model, gradients = warmed(options)
    store = PlannedMemory(model, wanted)
    store.prepare(lambda: gradients(store))
    trials, chosen, whole = store.trials, store.chosen, store.trials[0]
    recomputed = [t for t in trials if set(t.plan.choices.values()) == {"save", "recompute"}]
    nothing = peak_live_bytes(lambda: gradients(Nothing()), torch.device("cpu"))
    # A fresh store saves everything: what is measured is the model's own checkpointing.
    fresh = PlannedMemory(model, wanted)
    model.checkpointed = True
    blocks = peak_live_bytes(lambda: gradients(fresh), torch.device("cpu"))
    least = min([blocks, *(trial.peak for trial in recomputed)])
    best = min(recomputed, key=lambda trial: trial.peak)
    return {
        "over_checkpointing": chosen.peak / least,
        "nothing_saved_over_checkpointing": nothing / least,
        "gradient_error": chosen.error,
        "seconds_over_checkpointing": chosen.seconds / best.seconds,
        "mib": {
            "saved": whole.peak / 2**20,
            "every_block": blocks / 2**20,
            "checkpointed": least / 2**20,
            "planned": chosen.peak / 2**20,
        },
        "trials": [
            {
                "choices": sorted(set(t.plan.choices.values())),
                "mib": t.peak / 2**20,
                "seconds": t.seconds,
                "error": t.error,
            }
            for t in trials
        ],
        "choices": dict(chosen.plan.choices),
    }


def rivals(options: dict) -> dict:
    """Return live bytes and gradient error of ActNN's scheme and of GACT's at four bits."""
    model, gradients = warmed(options)
    exact = gradients(PlannedMemory(model, MemoryConfig(activations="planned")))
    found = {}
    for name, scheme in (("actnn", models.Quantised(model, 4)), ("gact", models.Adapted(model, 4))):
        store = Rounded(scheme)
        if name == "gact":
            scheme.adapt(lambda s=store: torch.cat([g.reshape(-1) for g in gradients(s).values()]))
        kept = gradients(store)
        error = sum(float((kept[n] - g).square().sum()) for n, g in exact.items())
        size = sum(float(g.square().sum()) for g in exact.values())
        peak = peak_live_bytes(lambda s=store: gradients(s), torch.device("cpu"))
        found[name] = {"mib": peak / 2**20, "gradient_error": (error / size) ** 0.5}
    return found


def offload(options: dict) -> dict:
    """Compare live bytes and time (disk waits included) of the methods that change no bit."""
    model, gradients = warmed(options)
    stores = {"saved": PlannedMemory(model, MemoryConfig(activations="planned"))}
    stores["recompute"] = Recompute(model, MemoryConfig(activations="recompute"))
    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        moved = MemoryConfig(activations="offload", folder=folder)
        away = stores["offload"] = Offload(model, moved)
        found = {name: gradients(store) for name, store in stores.items()}
        equal = all(
            torch.equal(each[name], exact)
            for each in found.values()
            for name, exact in found["saved"].items()
        )
        if not equal:
            raise SystemExit("red gate: gradients differ")
        seconds, waited = {name: [] for name in stores}, []
        for _ in range(options["rounds"]):
            for name, store in stores.items():
                started, blocked = time.process_time(), away.place.blocked
                gradients(store)
                waited.append(away.place.blocked - blocked)
                seconds[name].append(time.process_time() - started + waited[-1])
        cpu = torch.device("cpu")
        mib = {n: peak_live_bytes(lambda s=s: gradients(s), cpu) / 2**20 for n, s in stores.items()}
        return {
            "mib": mib,
            "seconds": medians(seconds),
            "moved_mib": away.moved_bytes / 2**20,
            "waited_seconds": max(waited),
        }


if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    parts = {
        "memory": memory,
        "errors": errors,
        "timing": timing,
        "accuracy": accuracy,
        "planned": planned,
        "rivals": rivals,
        "offload": offload,
    }
    print(json.dumps(parts[chosen["part"]](chosen)))
