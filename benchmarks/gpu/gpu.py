"""GPUs: the device contract, which needs none, and what `make gpu` measured on one.

The contract is every test marked `device`, also the slow ones, under the pretended device
(`tests/helpers/pretended_gpu.py`): tensors that report a GPU, refuse mixed devices as CUDA, and
have no address for C. Its tests that name a workflow are counted apart. The figures of speed are
those of `_gpu.py`: measured now where torch sees a GPU, otherwise the newest stored ones, with the
device and date under `measured_on`, or none.

A speed-up is the time of the fastest peer over ours, each in its fastest setting, unless the name
says `deterministic`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

from _gpu import device_files
from _measure import machine
from _places import RESULTS, ROOT

PRETENDED = "tests.helpers.pretended_gpu"  # the plug-in of pytest
WORKFLOWS = "workflow"


def run() -> dict:
    """Return counts of the contract and figures of the newest measurement."""
    import torch

    if torch.cuda.is_available():
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name("_gpu.py"))],
            check=False,
            stdout=sys.stderr,
        )
    return {**contract(), **figures(newest()), "machine": machine()}


def contract() -> dict[str, Any]:
    """Return tests and failures under the pretended device; a test that did not run has failed."""
    files = device_files()
    if not files:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "device"]
        command += ["-n0", "-p", PRETENDED, f"--junitxml={report}", *files]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True
        )
        if not report.exists():
            raise SystemExit(f"no contract test ran:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return counted(report.read_text(encoding="utf-8"))


def counted(report: str) -> dict[str, Any]:
    """Return the counts of a JUnit report: `workflows`, `contract`, each with `_failed`."""
    counts: dict[str, Any] = dict.fromkeys(
        ("workflows", "workflows_failed", "contract", "contract_failed", "contract_skipped"), 0
    )
    failed = []
    for case in xml.fromstring(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        kind = "workflows" if WORKFLOWS in name.lower() else "contract"
        if case.find("skipped") is not None:
            counts["contract_skipped"] += 1
            continue
        counts[kind] += 1
        if case.find("failure") is not None or case.find("error") is not None:
            counts[f"{kind}_failed"] += 1
            failed.append(name)
    for kind in ("workflows", "contract"):
        if counts[kind] == 0:
            del counts[f"{kind}_failed"]  # none failed because none ran
    return {**counts, "failed_tests": failed}


def newest() -> dict[str, Any]:
    """Return the newest stored measurement, empty if there is none."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("gpu_*_*.json")]
    whole = [each for each in found if "rungs" in each and each.get("device")]
    return max(whole, key=lambda each: each["date"], default={})


def figures(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a measurement by the names of the goals; missing ones are left out."""
    if not stored:
        return {}
    rungs = {name: each.get("figures", {}) for name, each in stored["rungs"].items()}
    out: dict[str, Any] = {"measured_on": f"{stored['device']}, {stored['date']}"}
    counts: dict[str, int] = {}
    for name, rung in stored["rungs"].items():
        for kind, number in rung.get("counts", {}).items() if "device tests" in name else ():
            counts[kind] = counts.get(kind, 0) + number
    if counts:
        out["device_tests"] = counts
    for kind in ("float32", "float64"):
        told = rungs.get(f"mace {kind}", {})
        _put(out, f"mace_speedup_{kind}", told.get("speedup"))
        _put(out, f"mace_speedup_over_plain_{kind}", told.get("speedup_over_plain"))
        _put(out, f"se_e2_a_speedup_{kind}", rungs.get(f"se_e2_a {kind}", {}).get("speedup"))
    pair = [out.get(f"se_e2_a_speedup_{kind}") for kind in ("float32", "float64")]
    _put(out, "se_e2_a_speedup", None if None in pair else min(pair))
    out |= _products(rungs.get("products float32", {}).get("problems", {}))
    graphs = [rungs.get(name, {}).get("speedup") for name in ("gcn", "gat")]
    _put(out, "graph_speedup", None if None in graphs else min(graphs))
    fields = rungs.get("fields comet", {})
    _put(out, "comet_memory_ratio", fields.get("memory_ratio"))
    _put(out, "comet_step_ratio", fields.get("step_ratio"))
    _put(out, "comet_step_over_checkpointing", fields.get("step_over_checkpointing"))
    _put(out, "feed_share", rungs.get("fields feed", {}).get("share"))
    jobs = stored.get("compared", {})
    out["jobs_passed"] = sum(row["state"] == "passed" for row in jobs.values())
    out["jobs"] = jobs
    return out


def _put(out: dict[str, Any], name: str, value: float | None) -> None:
    if value is not None:
        out[name] = value


def _products(problems: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    every = []
    for work in ("forward", "backward", "double"):
        rows = [each[work] for each in problems.values() if "speedup" in each.get(work, {})]
        if not rows:
            continue
        best = [max(row["speedup"], row["atomic_speedup"]) for row in rows]
        out[f"tensor_product_{work}_min"] = min(best)
        out[f"tensor_product_{work}_deterministic_min"] = min(row["speedup"] for row in rows)
        out[f"tensor_product_{work}_share_of_copy"] = min(row["share_of_copy"] for row in rows)
        every += best
    if every:
        out["tensor_product_problems"] = len(problems)
        out["tensor_product_mean"] = math.exp(statistics.mean(map(math.log, every)))
    return out
