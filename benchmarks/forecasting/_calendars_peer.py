"""Eight models of statsforecast on the series of `forecast_calendars`.

`python _calendars_peer.py [NAME ...]` prints JSON, {series: {model: RMSE over leads and origins}}.
Each model
is fitted once to the steps before the test part, and forecasts from each origin with the values up
to it (`cross_validation`, refit=False). Missing values are interpolated linearly.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from functools import partial

import numpy as np
import pandas as pd
from _calendar_series import TEST, series
from _progress import Progress

warnings.filterwarnings("ignore")
LONGEST_SEASON = 24
"""Seasons above it are given to the decomposition and the seasonal naive forecast only."""


def models(seasons):
    from statsforecast.models import (
        MSTL,
        AutoARIMA,
        AutoCES,
        AutoETS,
        AutoTheta,
        Naive,
        RandomWalkWithDrift,
        SeasonalNaive,
    )

    period = int(seasons[0]) if seasons else 1
    short = period if period <= LONGEST_SEASON else 1
    out = [
        Naive(),
        SeasonalNaive(period),
        RandomWalkWithDrift(),
        AutoARIMA(season_length=short, approximation=True),
        AutoETS(season_length=short),
        AutoTheta(season_length=short),
        AutoCES(season_length=short),
    ]
    if seasons:
        inner = AutoARIMA(season_length=1, approximation=True)
        return [*out, MSTL([int(p) for p in seasons], trend_forecaster=inner)]
    return out


def scores(made, progress: Progress) -> dict[str, float]:
    out = {}
    for number, model in enumerate(models(made.seasons)):
        part = partial(score, made, model)
        column, rmse = progress.part(f"{made.name}, model {number}", part)[0]
        out[column] = rmse
    return out


def score(made, model) -> tuple[str, float]:
    from statsforecast import StatsForecast

    values = pd.Series(made.values).interpolate(limit_direction="both").to_numpy()
    frame = pd.DataFrame({"unique_id": "a", "ds": np.arange(len(values)), "y": values})
    # The random walk with drift has no forecast with earlier parameters: it is fitted again.
    done = StatsForecast([model], freq=1).cross_validation(
        made.leads, frame, step_size=1, test_size=TEST, refit=repr(model) == "RWD"
    )
    print(f"{made.name}: {model}, {time.process_time():.0f} s", file=sys.stderr, flush=True)
    column = next(c for c in done.columns if c not in ("unique_id", "ds", "cutoff", "y"))
    return column, float(np.sqrt(((done[column] - done["y"]) ** 2).mean()))


if __name__ == "__main__":
    wanted = sys.argv[1:] or [m.name for m in series()]
    progress = Progress("forecast_calendars_peers")
    print(json.dumps({m.name: scores(m, progress) for m in series() if m.name in wanted}))
