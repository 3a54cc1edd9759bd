"""Searched forecasters of sea-surface temperature, on the SC20 coefficients and on ERSSTv5.

SC20: the closed-form forecast of `forecast_sc20` (average of autoregressions, selected there by
blocked validation) is the base. Networks of the search space are fitted to its out-of-block
residuals on the 427 training weeks: trained on four of six blocks, scored on the other two, 8 weeks
apart. Evolution, random search and DeepHyper's CBO get the same CPU seconds (their overhead
included) with three seeds each. The finalists of the first evolution are retrained with three new
seeds each in leave-one-block-out; all nine networks together, times one factor per lead estimated
there, make the forecaster. The 1,487 test weeks are evaluated once, at the end.

ERSSTv5: `workflows/sst_search` with more trials, compared with the baselines of its report.

Caveat: test scores of the base were seen when `forecast_sc20` was made.
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache

import forecast_sc20 as sc20
import numpy as np
import torch
from _places import ROOT
from _rolling_intervals import rolling_intervals
from _standardised_error import Validated, standardised_error

from scitoolkit import forecasting as baselines
from scitoolkit.forecasting import corrections, metrics
from scitoolkit.forecasting.forecasters.autoregression import Average
from scitoolkit.forecasting.forecasters.climatology import last_anomaly
from scitoolkit.forecasting.lstm import PodLSTM
from scitoolkit.forecasting.windows import TimeSeries, Windows, all_windows, blocked_folds
from scitoolkit.search import AgingEvolution, InProcess, RandomSearch, Search, Space, real, spaces

INPUTS = LEADS = 8
BLOCKS, HELD_OUT, GAP = 6, (2, 5), 8
CPU_SECONDS, SEEDS, PROCESSES = 15.0, 3, 4
FINALISTS, RETRAINED = 3, 3
SPACE = Space(
    {
        **spaces.description("pod_lstm"),
        "head": ["last_state", "all_steps", "encoder_decoder"],
        "epochs": [3, 6, 12],
        "share": [0.1, 0.25, 0.5, 1.0],
        "lr": real(3e-4, 1e-2, log=True),
        "weight_decay": real(1e-3, 1.0, log=True),
    }
)


class CpuClock(InProcess):
    """Counts the CPU seconds of this process as the time of the search."""

    def now(self) -> float:
        return time.process_time()


# --- data -----------------------------------------------------------------------------------------


class Block:
    """Windows of one block: inputs, truth and base forecast by a base that has not seen it."""

    def __init__(self, base, windows: Windows):
        self.inputs = features(base, windows)
        self.truth, self.forecast = windows.targets(), base.predict(windows)
        self.scale = scale(base)
        self.residual = (self.truth - self.forecast) / self.scale


def scale(base) -> np.ndarray:
    return base.members[0].scale_


def features(base, windows: Windows) -> np.ndarray:
    """Return (window, inputs, 7): standardised anomalies, cos and sin of the season."""
    climatology = base.members[0].climatology
    lags = reversed(range(windows.inputs))
    anomalies = [last_anomaly(climatology, windows, lag) / scale(base) for lag in lags]
    angle = 2 * np.pi * windows.input_years()[..., None]
    x = np.concatenate([np.stack(anomalies, axis=1), np.cos(angle), np.sin(angle)], axis=2)
    return x.astype(np.float32)


@lru_cache(maxsize=1)
def blocks() -> list[Block]:
    train, _, _ = sc20.read()
    out = []
    for segments, held in blocked_folds([train], BLOCKS, GAP, INPUTS + LEADS):
        base = base_model().fit(segments)
        out.append(Block(base, all_windows(held, INPUTS, LEADS)))
    return out


def base_model():
    grid = [(n, alpha) for n in sc20.HARMONICS for alpha in sc20.ALPHAS]
    make = baselines.AnomalyAutoregression
    return Average([make(n, LEADS, alpha) for n, alpha in grid])


# --- one network ----------------------------------------------------------------------------------


def fit(configuration, seed: int, parts: list[Block]) -> torch.nn.Module:
    """Train one network on the residuals of some blocks."""
    torch.set_num_threads(1)
    torch.manual_seed(seed % 2**31)
    cells = configuration["model.architecture"]
    network = PodLSTM(
        7,
        5,
        inputs=INPUTS,
        leads=LEADS,
        head=configuration["head"],
        nodes=cells["nodes"],
        skips=cells["skips"],
    )
    x = torch.from_numpy(np.concatenate([b.inputs for b in parts]))
    y = torch.from_numpy(np.concatenate([b.residual for b in parts]).astype(np.float32))
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=configuration["lr"], weight_decay=configuration["weight_decay"]
    )
    for _ in range(configuration["epochs"]):
        for rows in torch.randperm(len(x)).split(96):
            loss = ((network(x[rows]) - y[rows]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    network.share = configuration["share"]
    return network.eval()


def correction(network, inputs: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return network.share * network(torch.from_numpy(inputs)).double().numpy()


def cut(block: Block, others: tuple[int, ...], number: int) -> Block:
    """Return a block without the windows within GAP weeks of a held-out neighbour."""
    keep = slice(GAP if number - 1 in others else 0, -GAP if number + 1 in others else None)
    near = object.__new__(Block)
    near.scale = block.scale
    for name in ("inputs", "truth", "forecast", "residual"):
        setattr(near, name, getattr(block, name)[keep])
    return near


def split(held: tuple[int, ...]) -> tuple[list[Block], list[Block]]:
    every = blocks()
    train = [cut(b, held, i) for i, b in enumerate(every) if i not in held]
    return train, [every[i] for i in held]


def held_out_error(networks: list, held: list[Block]) -> float:
    """Return 1 - R² uniform of base + mean correction; that of the base is reported too."""
    truth = np.concatenate([b.truth for b in held])
    forecast = np.concatenate([corrected(block, networks) for block in held])
    return standardised_error(Validated(truth, forecast))


def corrected(block: Block, networks: list) -> np.ndarray:
    """Return base + mean correction of the networks, if there are any."""
    if not networks:
        return block.forecast
    mean = np.mean([correction(network, block.inputs) for network in networks], axis=0)
    return block.forecast + mean * block.scale


def evaluate(configuration, trial):
    train, held = split(HELD_OUT)
    network = fit(configuration, trial.seed, train)
    parameters = sum(p.numel() for p in network.parameters())
    return {"error": held_out_error([network], held), "parameters": parameters}


def in_processes(function, arguments: list[tuple]) -> list:
    """Call a function of this module in processes of one thread, and keep the order."""
    import search_sst  # under the name by which the processes can import it

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        called = getattr(search_sst, function.__name__)
        return [f.result() for f in [pool.submit(called, *a) for a in arguments]]


# --- strategies at equal CPU time -----------------------------------------------------------------


def strategy(name: str):
    if name == "cbo":
        from scitoolkit.search import BayesianSearch

        return BayesianSearch()
    return RandomSearch() if name == "random" else AgingEvolution(population=12, tournament_size=4)


def search(name: str, seed: int):
    blocks()  # reading the data is not the search's time
    made = Search(SPACE, evaluate, strategy=strategy(name), objectives=["error"], seed=seed)
    return made.run(seconds=CPU_SECONDS, workers=CpuClock(evaluate))


def compare() -> tuple[dict, object]:
    """Return the best validation R² of every strategy and seed, and the first evolution."""
    order = [(n, s) for n in ("evolution", "random", "cbo") for s in range(SEEDS)]
    random.Random(0).shuffle(order)  # no strategy gets the quiet or the busy minutes
    found = dict(zip(order, in_processes(search, order), strict=True))
    table = {}
    for name in ("evolution", "random", "cbo"):
        histories = [found[name, seed] for seed in range(SEEDS)]
        best = [1 - h.best.values[0] for h in histories]
        table[name] = {
            "best_validation_r2": best,
            "mean": statistics.fmean(best),
            "spread": statistics.stdev(best),
            "trials": [len(h.done) for h in histories],
            "duplicates": sum(h.duplicates() for h in histories),
        }
    return table, found["evolution", 0]


# --- finalists and test ---------------------------------------------------------------------------


def fit_without(configuration, seed: int, block: int) -> torch.nn.Module:
    return fit(configuration, seed, split((block,))[0])


def finalists(history) -> list[dict]:
    """Train the best configurations again, leaving out one block at a time; best mean first."""
    out = []
    for trial in history.ranked()[:FINALISTS]:
        seeds = [1000 * trial.id + k for k in range(RETRAINED)]
        pairs = [(j, seed) for j in range(BLOCKS) for seed in seeds]
        fitted = in_processes(fit_without, [(trial.configuration, s, j) for j, s in pairs])
        networks = dict(zip(pairs, fitted, strict=True))
        errors = [
            statistics.fmean(
                held_out_error([networks[j, seed]], [blocks()[j]]) for j in range(BLOCKS)
            )
            for seed in seeds
        ]
        out.append(
            {
                "configuration": trial.configuration,
                "trial": trial.id,
                "seeds": seeds,
                "networks": networks,
                "errors": errors,
                "mean": statistics.fmean(errors),
            }
        )
    return sorted(out, key=lambda f: f["mean"])


def lead_factors(rows: list[dict]) -> np.ndarray:
    """Return (lead,): how much of the mean correction has shown skill on left-out blocks."""
    residual, found = [], []
    for j, block in enumerate(blocks()):
        members = [correction(f["networks"][j, s], block.inputs) for f in rows for s in f["seeds"]]
        residual.append(block.residual)
        found.append(np.mean(members, axis=0))
    return corrections.lead_factors(np.concatenate(residual), np.concatenate(found))


def test(rows: list[dict]) -> dict:
    """Score base, single networks and the ensemble on the test weeks: the only look at them."""
    train, series, _ = sc20.read()
    base = base_model().fit([train])
    windows = all_windows(series, INPUTS, LEADS)
    truth, forecast = windows.targets(), base.predict(windows)
    x, factors = features(base, windows), lead_factors(rows)
    members = {
        (f["trial"], seed): correction(fit(f["configuration"], seed, blocks()), x) * scale(base)
        for f in rows
        for seed in f["seeds"]
    }
    applied = {key: forecast + factors[:, None] * c for key, c in members.items()}
    ensemble = np.mean(list(applied.values()), axis=0)
    single = [
        metrics.r2_uniform(truth, f) for (t, _), f in applied.items() if t == rows[0]["trial"]
    ]
    steps = windows.starts[:, None] + INPUTS + np.arange(LEADS)
    past = np.concatenate([b.truth - b.forecast for b in blocks()])
    low, high = rolling_intervals(truth - ensemble, steps, windows.starts + INPUTS - 1, past)
    inside = metrics.coverage(truth, ensemble + low, ensemble + high, axis=(0, 1))
    return {
        "test_r2_uniform": metrics.r2_uniform(truth, ensemble),
        "test_r2_variance_weighted": metrics.r2_variance_weighted(truth, ensemble),
        "seed_spread": statistics.stdev(single),
        "winner_single_networks_r2": single,
        "base_r2": metrics.r2_uniform(truth, forecast),
        "lead_factors": factors.tolist(),
        "coverage90_min": float(inside.min()),
        "coverage90_max": float(inside.max()),
    }


# --- baselines ------------------------------------------------------------------------------------


def hand_made(train: TimeSeries, test_series: TimeSeries) -> dict:
    """Return test R² of hand-made LSTMs: as in the paper, with a better head, on the residual."""
    windows = all_windows(test_series, INPUTS, LEADS)
    truth = windows.targets()
    out = {"lstm_80x2_all_steps": metrics.r2_uniform(truth, sc20.manual_lstm(train)(windows))}
    out["lstm_80x1_last_state"] = metrics.r2_uniform(truth, _last_state(train)(windows))
    base = baselines.DampedAnomaly(4, LEADS).fit([train])
    own = all_windows(train, INPUTS, LEADS)
    residual, spread = own.targets() - base.predict(own), train.values.std(0)
    network = _small(_standard(train, own), residual / spread)
    with torch.no_grad():
        learned = network(_standard(train, windows)).double().numpy() * spread
    out["damped_anomaly_plus_lstm_16"] = metrics.r2_uniform(truth, base.predict(windows) + learned)
    return out


def _standard(train: TimeSeries, windows: Windows) -> torch.Tensor:
    values = (windows.input_values() - train.values.mean(0)) / train.values.std(0)
    return torch.as_tensor(values, dtype=torch.float32)


def _small(x, residual):
    from scitoolkit.forecasting.lstm import fit_in_memory

    torch.manual_seed(0)
    network = PodLSTM(5, 5, inputs=INPUTS, leads=LEADS, hidden=16)
    return fit_in_memory(network, x, torch.as_tensor(residual, dtype=torch.float32), epochs=20)


def _last_state(train: TimeSeries):
    from scitoolkit.forecasting.lstm import fit_in_memory

    torch.manual_seed(0)
    mean, spread = train.values.mean(0), train.values.std(0)
    own = all_windows(train, INPUTS, LEADS)
    network = PodLSTM(5, 5, inputs=INPUTS, leads=LEADS, hidden=80)
    target = torch.as_tensor((own.targets() - mean) / spread, dtype=torch.float32)
    fit_in_memory(network, _standard(train, own), target, epochs=100, lr=1e-3)

    def predict(windows):
        with torch.no_grad():
            return network(_standard(train, windows)).double().numpy() * spread + mean

    return predict


def tuned_baselines(train: TimeSeries, series: TimeSeries) -> dict:
    windows = all_windows(series, INPUTS, LEADS)
    truth = windows.targets()
    _, make, _, errors = sc20.select(train)
    out = {
        name: metrics.r2_uniform(truth, predict(windows))
        for name, predict in sc20.fitted_baselines(train, errors).items()
    }
    return {
        **out,
        "autoregression_chosen": metrics.r2_uniform(truth, make().fit([train]).predict(windows)),
    }


def ersst() -> dict:
    """Search `workflows/sst_search` with more trials; figures of its report."""
    from scitoolkit import api
    from scitoolkit.core.results import Results

    workflow = ROOT / "workflows" / "sst_search"
    with tempfile.TemporaryDirectory() as root:
        settings = ["budget.trials=24", "strategy.population=10"]
        run = api.search(workflow, [f"run.root={root}", *settings])
        found = Results.read(run.path).metrics
        chosen = Results.read(run.path / "best").metrics.get("winner")
    names = (
        "retrained_mean",
        "seed_spread",
        "search_validation_rmse_base",
        "test_rmse",
        "test_rmse_damped_anomaly",
        "test_r2_uniform",
        "trials_done",
        "duplicates",
    )
    return {**{n: found[n] for n in names if n in found}, "chosen": chosen}


def run() -> dict:
    strategies, history = compare()
    rows = finalists(history)
    figures = test(rows)
    train, series, rkhs = sc20.read()
    made, tuned = hand_made(train, series), tuned_baselines(train, series)
    tuned["rkhs_prediction"] = sc20.rkhs_score(series, rkhs)["r2_uniform"]
    held = [blocks()[j] for j in HELD_OUT]
    best = max(tuned, key=tuned.get)
    return {
        **figures,
        "best_hand_made_r2": max(made.values()),
        "best_baseline_r2": tuned[best],
        "best_baseline": best,
        "validation_r2_of_base": 1 - held_out_error([], held),
        "finalists": [
            {"errors": f["errors"], "mean": f["mean"], "configuration": f["configuration"]}
            for f in rows
        ],
        "strategies_at_equal_cpu": strategies,
        "cpu_seconds_each": CPU_SECONDS,
        "hand_made": made,
        "baselines": tuned,
        "ersst": ersst(),
    }
