"""All tests and benchmarks that need a GPU, in sequence: `make gpu`.

First the files of tests marked `gpu`, then every benchmark with `run_cuda`. Each is a separate
process, prints a line when it ends, and is saved immediately in `results/gpu_DEVICE_DATE.json`;
failures and timeouts do not stop the following ones.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MARK = "gpu"
SECONDS = 600  # of a rung


def rungs() -> Iterable[tuple[str, list[str]]]:
    """Yield the name and the command of each rung."""
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    for path in tests:
        if f"pytest.mark.{MARK}" in path.read_text(encoding="utf-8"):
            name = str(path.relative_to(ROOT))
            yield name, ["-m", "pytest", "-q", "-m", MARK, name]
    for path in sorted(HERE.glob("[a-z]*.py")):
        if path.stem != "run" and "\ndef run_cuda(" in path.read_text(encoding="utf-8"):
            command = [str(HERE / "run.py"), path.stem, "--device", "cuda", "--json"]
            yield f"benchmark {path.stem}", command


def climb(
    each: Iterable[tuple[str, list[str]]],
    save: Callable[[dict[str, Any]], None],
    seconds: float = SECONDS,
) -> dict[str, Any]:
    """Run the rungs and return their results, which are passed to `save` after each one."""
    found: dict[str, Any] = {}
    for name, command in each:
        start = time.time()
        found[name] = _run(command, seconds)
        found[name]["wall_seconds"] = round(time.time() - start, 1)
        print(f"{found[name]['state']:8s} {found[name]['wall_seconds']:7.1f} s  {name}", flush=True)
        save(found)
    return found


def _run(command: list[str], seconds: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"state": "too long", "said": f"over {seconds:g} s"}
    if done.returncode:
        return {"state": "failed", "said": (done.stdout + done.stderr)[-2000:]}
    last = done.stdout.strip().splitlines()[-1:] or [""]
    try:
        return {"state": "passed", "figures": json.loads(last[0])}
    except ValueError:
        return {"state": "passed", "said": last[0]}


def main() -> int:
    import torch

    if not torch.cuda.is_available():
        print("make gpu: torch sees no GPU here, so nothing was run", file=sys.stderr)
        return 2
    device = torch.cuda.get_device_name()
    head = {
        "device": device,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    path = HERE / "results" / f"gpu_{slug}_{head['date']}.json"

    def save(found: dict[str, Any]) -> None:
        path.write_text(json.dumps({**head, "rungs": found}, indent=1) + "\n", encoding="utf-8")

    found = climb(rungs(), save)
    print(f"{device}: results in {path.relative_to(ROOT)}")
    return int(any(each["state"] != "passed" for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
