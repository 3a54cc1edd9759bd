"""Parameters of simulations as FiLM, as constant channels, or omitted; one model of four leads.

Gray-Scott patterns at feed rates drawn from .02 to .06 (kill rate .06), 24 simulations for
training, 8 at other rates of the same range for the test, equal training steps. One U-Net of the
leads 1, 2, 4 and 8 compared with one U-Net per lead, and with repeated steps of one lead.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from _measure import machine

from scitoolkit.core.config import load_config
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.job import EmulationJob
from scitoolkit.generators.gray_scott import GrayScott
from scitoolkit.io.fields import write_fields

LEARNING, TEST, FRAMES, STEPS = 24, 8, 24, 600
FEED, LEADS = (0.02, 0.06), (1, 2, 4, 8)
WAYS = {
    "film": ["data.parameters=[feed]", "conditioning=film"],
    "channels": ["data.parameters=[feed]"],
    "none": [],
}


def run() -> dict:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder)
        found = {way: _scores(folder, way, sections) for way, sections in WAYS.items()}
        together = _scores(
            folder, "leads", [*WAYS["film"], f"data.leads={list(LEADS)}", "data.lead=1"]
        )
        single = {
            lead: _scores(folder, f"lead{lead}", [*WAYS["film"], f"data.lead={lead}"])
            for lead in LEADS[1:]
        }
    film, each = found["film"], {}
    for lead in LEADS[1:]:
        alone = max(single[lead][f"one_step_over_persistence_{n}"] for n in "ab")
        shared = max(together[f"lead{lead}_over_persistence_{n}"] for n in "ab")
        repeated = max(together[f"lead{lead}_over_repeated_steps_{n}"] for n in "ab")
        each[f"lead{lead}"] = {
            "over_persistence": shared,
            "over_a_model_of_its_own": shared / alone,
            "over_repeated_steps": repeated,
        }
    return {
        **{
            f"film_over_{way}_{key}": _worst(film, key) / _worst(found[way], key)
            for way in ("channels", "none")
            for key in ("one_step", "rollout8")
        },
        **{
            f"{way}_{key}_over_persistence": _worst(found[way], key)
            for way in WAYS
            for key in ("one_step", "rollout8")
        },
        "leads": each,
        "steps": STEPS,
        "machine": machine(),
    }


def _worst(scores: dict, key: str) -> float:
    """Return the error over persistence of the worse species."""
    return float(max(scores[f"{key}_over_persistence_{n}"] for n in "ab"))


def _write(folder: Path) -> None:
    rates = np.random.default_rng(0).uniform(*FEED, LEARNING + TEST)
    for number, feed in enumerate(rates):
        generator = GrayScott(feed=feed, cells=32, length=0.625, frames=FRAMES, spots=4)
        data = generator.generate(number).frames.assign_attrs(feed=float(feed))
        part = "train" if number < LEARNING else "test"
        (folder / part).mkdir(exist_ok=True)
        write_fields(data, folder / part / f"run{number:02d}.nc")


def _scores(folder: Path, name: str, sections: list[str]) -> dict:
    settings = [
        "domain=emulation",
        f"data.path={folder}/train/*.nc",
        f"data.test={folder}/test",
        "data.inputs=[a, b]",
        "data.outputs=[a, b]",
        "boundary={x: circular, y: circular}",
        f"split={{train: {LEARNING - 4}, validation: 4, test: 0}}",
        "model={name: unet, widths: [24, 48], blocks: 1}",
        "symmetries.shift=[x, y]",
        "rollout={long: 0}",
        f"training={{steps: {STEPS}, batch_size: 8, progress: false, ema_decay: 0.99, "
        "optimizer: {name: muon, lr: 0.003}, schedule: {name: cosine}}",
        f"run.root={folder}/runs",
        *sections,
    ]
    config = load_config(EmulationConfig, None, settings)
    directory = RunDirectory.create(config.run.root, name, config)
    EmulationJob().train(config, directory)
    return dict(EmulationJob().evaluate(directory.path).metrics)
