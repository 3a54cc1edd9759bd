"""Write README's table of measured results and its demo from `benchmarks/results/`.

`python benchmarks/run.py NAME --save` stores figures, and the demo's output is kept by
`make -s demo > benchmarks/results/demo.txt`. This script only formats, so that no number in
README is typed by hand. A test fails when README and the stored results disagree.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
BEGIN = "<!-- results: written by `python benchmarks/readme.py` -->"
END = "<!-- end of results -->"
DEMO_BEGIN = "<!-- demo: written by `python benchmarks/readme.py` -->"
DEMO_END = "<!-- end of demo -->"
DEMO_TABLES = 1

# benchmark -> (job, data, ours, peers); the braces take figures of the benchmark's JSON.
ROWS = {
    "forecast_sc20": (
        "POD forecast, 8 weeks -> 8 weeks",
        "POD coefficients of NOAA OISST weekly (427 train, 1487 test)",
        "test R² {test_r2_uniform:.3f} (variance-weighted {test_r2_variance_weighted:.4f}), "
        "{fit_cpu_seconds:.1f} CPU-s of fitting, 90 % intervals cover "
        "{coverage90_min:.3f} to {coverage90_max:.3f}",
        "R²: hand-made LSTM {baselines[lstm_manual][r2_uniform]:.3f}, "
        "RKHS {baselines[rkhs_prediction][r2_uniform]:.3f}, "
        "ridge {baselines[ridge][r2_uniform]:.3f}, "
        "damped anomaly {baselines[climatology_damped_anomaly][r2_uniform]:.3f}",
    ),
    "pod_streaming": (
        "POD of a file larger than memory",
        "338 MB, 1,914 x 44,219 float32",
        "{speedup_vs_numpy_svd:.1f} x faster, {peak_rss_growth_mib:.0f} MiB of memory "
        "({peak_rss_growth_10x_mib:.0f} MiB at 10 x the snapshots), "
        "singular values to {sigma_relative_error:.0e}",
        "numpy's full SVD",
    ),
    "trainer_overhead": (
        "Trainer overhead a step",
        "2-layer MLP, batch 64, one thread",
        "{overhead_us_per_step:.0f} µs over a raw torch loop",
        "Fabric {fabric_overhead_us_per_step:.0f} µs, Accelerate "
        "{accelerate_overhead_us_per_step:.0f} µs, Lightning "
        "{lightning_overhead_us_per_step:.0f} µs",
    ),
}


def table() -> str:
    lines = [
        "| job | data | scitoolkit | beside it, in the same run | command |",
        "|---|---|---|---|---|",
    ]
    for name, (job, data, ours, peers) in ROWS.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        figures = json.loads(path.read_text(encoding="utf-8"))
        lines.append(
            f"| {job} | {data} | {ours.format(**figures)} | {peers.format(**figures)} | "
            f"`python benchmarks/run.py {name}` |"
        )
    return "\n".join(lines)


def demo() -> str:
    """Return the head and the first tables of the demo's output."""
    path = RESULTS / "demo.txt"
    if not path.exists():
        return ""
    blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
    kept = [*blocks[: 3 + DEMO_TABLES], "...", blocks[-1]]
    return "```text\n" + "\n\n".join(kept) + "\n```"


def between(text: str, begin: str, end: str, new: str) -> str:
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{new}\n{end}{tail}"


def updated(readme: str) -> str:
    return between(between(readme, DEMO_BEGIN, DEMO_END, demo()), BEGIN, END, table())


def main() -> int:
    path = ROOT / "README.md"
    old = path.read_text(encoding="utf-8")
    new = updated(old)
    if "--check" in sys.argv:
        return int(old != new)
    path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
