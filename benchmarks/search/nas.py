"""Architecture search on a table of trained networks, and its gain over the best closed form.

Every network of a space of 576 is trained for a few epochs on one task, so that strategies can be
simulated on the table with 12 seeds: `q75_excess_*` is the third quartile of (best of 60 trials /
best of the table) - 1. One-shot: weights shared by all networks are trained along random paths, the
best networks are briefly trained further, and the four best of these are trained alone; reported
are its excess and its share of the table's CPU time, medians over three seeds of the shared
training. The number of brief rounds is the better of two settings on this table.

`pays_margin_in_seed_noise`: on test windows, (RMSE of the better of the best closed form, which the
shipped `auto` delivers, and a hand-made LSTM - RMSE of the searched network) in standard deviations
of the searched network over training seeds; the largest over the tasks tried, negative if search
improves on no task. `tried` lists all. Nothing is selected on test data.

Tasks: a ring of Mackey-Glass delay equations (non-polynomial feedback), Kuramoto-Sivashinsky
observed by five sensors, Lorenz-96 with every fifth point observed.
"""

from __future__ import annotations

import sys
import time

import _nas_networks as networks
import numpy as np
import torch
from _forecasts import SPLIT, folder, trained, write
from _nas_networks import AXES, HAND_MADE, INPUTS, LEADS, Net, Task
from _series import kuramoto_sivashinsky, lorenz96, mackey_glass

EPOCHS, FINAL_EPOCHS, SHARE = 5, 40, 0.2
SCREENS = ((160, 1), (48, 2), (16, 4))  # (networks, epochs) of the rounds after the shared training
TRIALS, SEEDS, FINAL_SEEDS, FINALISTS, BRIEF = 60, 12, 3, 4, 30
TASKS = {
    "delays": mackey_glass,
    "sensors": lambda: kuramoto_sivashinsky(2500)[:, 6::13],
    "hidden": lambda: lorenz96(2500)[:, ::5],
}


def space():
    from scitoolkit.search import Space

    return Space(
        {key: list(values) for key, values in AXES.items()},
        where=lambda c: c["cell"] in ("mlp", "conv") or c["activation"] == "tanh",
    )


def searched(evaluate, strategy, trials: int, seed: int):
    """Return the history of a search of the space."""
    from scitoolkit.search import Search

    search = Search(space(), lambda c: evaluate(Net(**c)), strategy=strategy, seed=seed)
    return search.run(trials=trials)


def played(table: dict[Net, float]) -> dict[str, float]:
    """Return the third quartile over seeds of the excess of each strategy on the table."""
    from scitoolkit.search import AgingEvolution, GaussianProcessSearch, RandomSearch

    makers = {
        "ours": GaussianProcessSearch,
        "random": RandomSearch,
        "evolution": lambda: AgingEvolution(15, 5),
    }
    best, found = min(table.values()), {}
    for name, make in makers.items():
        values = [
            searched(table.__getitem__, make(), TRIALS, seed).best.values[0]
            for seed in range(SEEDS)
        ]
        found[f"q75_excess_{name}"] = float(np.quantile(values, 0.75)) / best - 1
    return found


def shared(task: Task, points: list[Net], table: dict[Net, float], seconds: float) -> dict:
    """Return excess and cost of one-shot search with its best trained alone: medians over seeds."""
    runs = [_shared(task, points, table, seconds, seed) for seed in range(FINAL_SEEDS)]
    excess, cost, spearman = np.median(runs, axis=0).tolist()
    return {
        "one_shot_excess": excess,
        "one_shot_cost": cost,
        "one_shot_spearman": spearman,
        "one_shot_excess_by_seed": [excess for excess, _, _ in runs],
    }


def _shared(task: Task, points: list[Net], table: dict, seconds: float, seed: int):
    begun = time.process_time()
    ranked = networks.one_shot(task, points, EPOCHS, SHARE, seed)
    finalists = networks.screened(ranked, SCREENS)[:FINALISTS]
    best = min(networks.validation(networks.trained(n.net, task, EPOCHS, 1)) for n in finalists)
    cost = (time.process_time() - begun) / seconds
    position = {network.net: i for i, network in enumerate(ranked)}
    order = sorted(table, key=table.get)
    spearman = np.corrcoef(np.arange(len(order)), [position[n] for n in order])[0, 1]
    return best / min(table.values()) - 1, cost, float(spearman)


def test_errors(net: Net, task: Task, windows, seeds: int) -> tuple[list[float], list[float]]:
    """Return validation and test RMSE, in the series' unit, of long trainings."""
    last = torch.as_tensor(windows.starts + INPUTS - 1)
    x = task.z[last[:, None] + torch.arange(1 - INPUTS, 1)]
    truth = task.z[last[:, None] + torch.arange(1, LEADS + 1)].numpy()
    validated, tested = [], []
    for seed in range(seeds):
        network = networks.trained(net, task, FINAL_EPOCHS, 100 + seed)
        validated.append(networks.validation(network))
        away = (networks.rollout(network, x).numpy() - truth) * task.scale
        tested.append(float(np.sqrt((away**2).mean())))
    return validated, tested


def compared(name: str, done, task: Task, finalists: list[Net]) -> dict:
    """Return the searched network, the hand-made one and the best closed form on test windows."""
    windows = done.windows
    finals = {net: test_errors(net, task, windows, FINAL_SEEDS) for net in finalists}
    winner = min(finals, key=lambda net: np.mean(finals[net][0]))
    hand_made = test_errors(Net(**HAND_MADE), task, windows, FINAL_SEEDS)[1]
    ours, closed = finals[winner][1], done.results.metrics["rmse"]
    rival = min(closed, float(np.mean(hand_made)))
    noise = float(np.std(ours, ddof=1))
    found = {
        "closed_form": closed,
        "closed_form_name": done.record["winner"],
        "hand_made": float(np.mean(hand_made)),
        "searched": float(np.mean(ours)),
        "searched_network": dict(winner._asdict()),
        "seed_noise": noise,
        "margin_in_seed_noise": (rival - float(np.mean(ours))) / noise,
    }
    print(name, found, file=sys.stderr, flush=True)
    return found


def run() -> dict:
    from scitoolkit.search import GaussianProcessSearch

    torch.set_num_threads(1)
    figures: dict = {}
    tried: dict[str, dict] = {}
    for name, make in TASKS.items():
        values = make()
        path = write(values, folder() / f"nas_{name}.nc")
        done = trained(path, values.shape[1], SPLIT)
        steps = done.record["steps"]
        task = Task.of(values, steps["train"][1], steps["validation"][1])
        if not tried:
            points = networks.all_networks()
            table, seconds = networks.table_of(task, points, EPOCHS)
            figures = {
                "table_size": len(table),
                "table_cpu_seconds": round(seconds, 1),
                "best": min(table.values()),
                "hand_made": table[Net(**HAND_MADE)],
                "medians": medians(table),
                **played(table),
                **shared(task, points, table, seconds),
            }
            print(figures, file=sys.stderr, flush=True)
            history = searched(table.__getitem__, GaussianProcessSearch(), TRIALS, 0)
        else:
            history = searched(
                lambda net, task=task: networks.validation(networks.trained(net, task, EPOCHS, 1)),
                GaussianProcessSearch(),
                BRIEF,
                0,
            )
        finalists = [Net(**t.configuration) for t in history.ranked()[:FINALISTS]]
        tried[name] = compared(name, done, task, finalists)
    best = max(tried, key=lambda name: tried[name]["margin_in_seed_noise"])
    margin = tried[best]["margin_in_seed_noise"]
    return {
        **figures,
        "pays_margin_in_seed_noise": margin,
        "pays_where": best if margin > 0 else "nowhere: a search does not beat a closed form here",
        "tried": tried,
    }


def medians(table: dict[Net, float]) -> dict[str, dict[str, float]]:
    """Return the median error by every value of every axis."""
    return {
        axis: {
            str(value): float(np.median([e for n, e in table.items() if getattr(n, axis) == value]))
            for value in values
        }
        for axis, values in AXES.items()
    }
