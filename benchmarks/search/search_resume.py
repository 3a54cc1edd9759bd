"""A search killed (SIGKILL) 20 times at random moments and resumed each time.

One worker and a seed, on the space of the SC20 paper. Counted are finished trials that are missing
after a kill (lost), finished trials that run again (repeated), and whether the whole history equals
that of an uninterrupted search. A trial is finished once the evaluation has recorded it in a
separate file, just before it returns its result; the one trial being delivered at the moment of a
kill may run again and is counted separately, as handed_over.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KILLS, TRIALS, SECONDS = 20, 400, 0.03


def evaluate(configuration, trial):
    """Run for about 30 ms and record the trial in a file that the manager does not write."""
    time.sleep(SECONDS * random.Random(trial.seed).uniform(0.5, 1.5))
    nodes = configuration["a"]["nodes"]
    value = sum(abs(n - 48) for n in nodes) + len(configuration["a"]["skips"])
    note = Path(os.environ["SEARCH_RESUME_NOTES"])
    with note.open("a") as file:
        file.write(f"{trial.number} {trial.seed}\n")
    return value


def search(folder, resume):
    from scitoolkit.search import AgingEvolution, Search, spaces

    description = spaces.description("pod_lstm")["model.architecture"]
    strategy = AgingEvolution(population=50, tournament_size=10)
    made = Search({"a": description}, evaluate, directory=folder, strategy=strategy, seed=7)
    return made.run(trials=TRIALS, resume=resume)


def start(folder, notes):
    resume = (Path(folder) / "trials.jsonl").exists()
    command = [sys.executable, __file__, str(folder), "resume" if resume else "new"]
    return subprocess.Popen(command, env={**os.environ, "SEARCH_RESUME_NOTES": str(notes)})


def finished(folder):
    from scitoolkit.search.trial_log import read_events

    return [e["trial"] for e in read_events(folder) if e["event"] == "finish"]


def run() -> dict:
    from scitoolkit.search import load_history
    from scitoolkit.search.history import same_history

    rng = random.Random(20)
    root = Path(tempfile.mkdtemp(prefix="search-resume-"))
    broken, whole, notes = root / "broken", root / "whole", root / "notes"
    kills, before, lost, torn = 0, [], 0, 0
    while kills < KILLS:
        process = start(broken, notes)
        _wait_for_growth(broken, len(before), process)
        time.sleep(rng.uniform(0.0, 0.4))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        torn += not (broken / "trials.jsonl").read_bytes().endswith(b"\n")
        now = finished(broken)
        lost += len(set(before) - set(now))
        before = now
    assert start(broken, notes).wait() == 0, "the last continuation failed"
    final = finished(broken)
    lost += len(set(before) - set(final))
    assert start(whole, root / "notes-whole").wait() == 0
    executed = [int(line.split()[0]) for line in notes.read_text().splitlines()]
    return {
        "lost": lost,
        "repeated": len(final) - len(set(final)),
        "history_equal": same_history(load_history(broken), load_history(whole)),
        "kills": kills,
        "lines_cut_short": torn,
        "trials": len(set(final)),
        "handed_over": len(executed) - len(set(executed)),
    }


def _wait_for_growth(folder, count, process):
    """Let the new process get as far as finishing something, so that every kill hurts."""
    while process.poll() is None:
        if (folder / "trials.jsonl").exists() and len(finished(folder)) > count:
            return
        time.sleep(0.02)


if __name__ == "__main__":
    search(sys.argv[1], sys.argv[2] == "resume")
