"""The device part of all contract suites, in a separate process whose GPU is pretended."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HAS_PART = re.compile(
    r"pytest\.mark\.device|\b(Potential|FieldModel|GraphModel|Decoder|Optimizer|Guard|Forecaster|ActivationStore|Strategy|TrainingStrategy)Contract\b"
)


def test_every_member_runs_on_a_device_other_than_the_cpu() -> None:
    """Operations, models, optimizers and workflows: the numbers of the CPU, on the GPU."""
    files = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
        if path != Path(__file__) and HAS_PART.search(path.read_text(encoding="utf-8"))
    ]
    assert len(files) > 5, files
    options = ["-q", "-rs", "-n0", "-p", "no:cacheprovider", "-p", "tests.helpers.pretended_gpu"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-m", "device and not slow", *files],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    assert done.returncode == 0, "\n".join(failed) or done.stdout[-3000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", lines[-1])
    assert passed is not None, lines[-1]
    assert int(passed[1]) >= 80, lines[-1]
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    assert all("needs a real GPU" in line for line in skipped), "\n".join(skipped)
