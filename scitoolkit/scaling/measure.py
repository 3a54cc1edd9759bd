"""One rank of `scitoolkit bench training`: `python -m scitoolkit.scaling.measure FOLDER`.

Rank 0 writes the measurements of all P ranks to `FOLDER/P.json`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from scitoolkit.core.config import load_config
from scitoolkit.core.files import write_atomic
from scitoolkit.core.processes import current_rank, leave, world_size
from scitoolkit.scaling.config import ScalingConfig, case_settings
from scitoolkit.scaling.machine import averaged, measured
from scitoolkit.scaling.memory_classes import by_class, live_storages
from scitoolkit.scaling.metg import HALF, crossing
from scitoolkit.scaling.step_clock import StepClock, time_split
from scitoolkit.scaling.workload import PatternTask, RandomRows, network
from scitoolkit.training import Callback, Trainer, TrainingConfig
from scitoolkit.training.processes import gather_objects, process_group
from scitoolkit.training.ranks.communicator import join
from scitoolkit.training.traffic import TrafficCounter
from scitoolkit.training.view import TrainingView

GROWTH, LEAST_STEPS = 4, 4
SWEEP_SECONDS = 0.3  # duration of the steps of one size


class _Steps(Callback):
    """Callback that records the wall time of each step after the warm-up, and the final memory."""

    wants_every_step = True

    def __init__(self, warm_up: int, clock: StepClock | None = None) -> None:
        self._warm_up, self._clock = warm_up, clock
        self._before = live_storages() if clock is not None else {}
        self._last = 0.0
        self.seconds: list[float] = []
        self.memory: dict[str, int] = {}

    def on_step(self, trainer: TrainingView) -> None:
        """Record the time; discard earlier measurements at the end of the warm-up."""
        now = time.perf_counter()
        if trainer.step > self._warm_up:
            self.seconds.append(now - self._last)
        clock = self._clock
        if clock is not None and trainer.step == self._warm_up:
            clock.reset()
        if clock is not None and trainer.step == trainer.total_steps:
            assert clock.optimizer is not None
            self.memory = by_class(trainer.task.model, clock.optimizer, self._before)
        self._last = time.perf_counter()


def trained(
    config: ScalingConfig,
    case: str,
    pattern: str,
    samples: int,
    steps: int,
    clock: StepClock | None = None,
) -> _Steps:
    """Train for some steps and return their times and memory on this rank.

    Args:
        config: configuration of the network.
        case: one of `ScalingConfig.strategies`, or "single".
        pattern: communication pattern between the steps.
        samples: samples per step of this rank.
        steps: number of measured steps.
        clock: splits the time of the steps into phases.
    """
    ranks = join()
    task = PatternTask(network(config.width, config.depth), pattern, ranks, clock)
    table = torch.randn(4 * samples, config.width, generator=torch.Generator().manual_seed(2))
    loader = RandomRows(table, samples, config.warm_up + steps, ranks.rank, clock)
    training = TrainingConfig.model_validate(
        {
            "steps": config.warm_up + steps,
            "batch_size": samples * ranks.size,
            "device": "cpu",
            "progress": False,
            "log_every": 10**9,
            **case_settings(case),
        }
    )
    seen = _Steps(config.warm_up, clock)
    with clock.running() if clock is not None else contextlib.nullcontext():
        Trainer(task, training, callbacks=[seen]).fit(loader)
    return seen


def one_case(config: ScalingConfig, case: str) -> dict[str, Any]:
    """Measure time per step, its phases, traffic and memory of a strategy."""
    counter = TrafficCounter()
    clock = StepClock(counter)
    seen = trained(config, case, "trivial", config.samples, config.steps, clock)
    by_rank = gather_objects(
        (sum(seen.seconds), clock.seconds, counter.blocked, seen.memory, seen.seconds)
    )
    wall, phases, blocked, memory, _ = zip(*by_rank, strict=True)
    slowest = [max(steps) for steps in zip(*(f[-1] for f in by_rank), strict=True)]
    return {
        "step_seconds": statistics.median(slowest),
        "split": {k: v / config.steps for k, v in time_split(wall, phases, blocked).items()},
        "memory": {name: max(m[name] for m in memory) for name in memory[0]},
        "traffic": {
            name: {key: value / config.steps for key, value in traffic.items()}
            for name, traffic in counter.as_dict().items()
        },
    }


def sweep(
    config: ScalingConfig, case: str, pattern: str, rates: Mapping[str, Any]
) -> dict[str, Any]:
    """Measure METG(50 %) of a strategy under a pattern; also return the steps it is based on."""
    samples, sizes = 1, list[int]()
    seconds, efficiencies = list[float](), list[float]()
    last = rates["step_seconds"]
    useful = 0.0
    # Work grows by a factor until half of the step is useful, or until a step takes too long to
    # try.
    while not efficiencies or (efficiencies[-1] < HALF and useful < config.step_seconds):
        steps = max(LEAST_STEPS, min(config.steps, int(SWEEP_SECONDS / max(last, 1e-6))))
        seen = trained(config, case, pattern, samples, steps)
        last = max(gather_objects(statistics.median(seen.seconds)))
        sizes.append(samples)
        seconds.append(last)
        useful = samples * rates["sample_seconds"]
        efficiencies.append(useful / last)
        samples *= GROWTH
    return {
        "metg50_seconds": crossing(seconds, efficiencies),
        "samples": sizes,
        "seconds": seconds,
        "efficiency": efficiencies,
    }


def main() -> None:
    """Run the measurements of this rank and write the file."""
    folder = Path(sys.argv[1])
    config = load_config(ScalingConfig, folder / "config.yaml")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    ranks = world_size()
    job = TrainingConfig(device="cpu", batch_size=ranks, timeout_seconds=300)
    with process_group(job):
        model = network(config.width, config.depth)
        cases = config.strategies if ranks > 1 else ("single",)
        # Measure rates before and after each case, because the load of the machine changes.
        record = [measured(model, config.width, config.samples).as_dict()]
        of_case: dict[str, Any] = {}
        for case in cases:
            of_case[case] = one_case(config, case)
            record.append(measured(model, config.width, config.samples).as_dict())
            of_case[case]["rates"] = averaged(record[-2:])
        rates = averaged(record)
        out: dict[str, Any] = {
            "ranks": ranks,
            "parameters": sum(p.numel() for p in model.parameters()),
            "rates": rates,
            "cases": of_case,
        }
        patterns = config.patterns if ranks > 1 else ("trivial",)
        if ranks in (1, config.processes):
            out["metg"] = {
                case: {pattern: sweep(config, case, pattern, rates) for pattern in patterns}
                for case in cases
            }
    if current_rank() == 0:
        write_atomic(folder / f"{ranks}.json", json.dumps(out))
    leave(0)


if __name__ == "__main__":
    main()
