"""Run a benchmark: `python benchmarks/run.py NAME --json`.

Each file `benchmarks/DOMAIN/NAME.py` has one function `run() -> dict` of named figures. It times
ours and the peer alternately in one call, on the same input, and raises before any speed is printed
if the two do not agree. `--json` prints exactly one object on stdout; all other output goes to
stderr. `--device cuda` runs `run_cuda()` of the benchmarks that have it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import time
import traceback
from pathlib import Path

from _places import FOLDERS, RESULTS, importable


def names() -> list[str]:
    return sorted(files())


def files() -> dict[str, Path]:
    """Return the file of each benchmark by name, whichever domain it is of."""
    paths = [path for folder in FOLDERS[1:] for path in sorted(folder.glob("[a-z]*.py"))]
    return {path.stem: path for path in paths if path.stem != "layouts"}


def load(name: str):
    importable()
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", files()[name])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run(name: str, device: str = "cpu") -> dict:
    started = time.time()
    with contextlib.redirect_stdout(sys.stderr):
        figures = load(name).run() if device == "cpu" else load(name).run_cuda()
    return {"benchmark": name, **figures, "wall_seconds": round(time.time() - started, 1)}


def table(figures: dict, indent: str = "") -> str:
    lines = []
    for key, value in figures.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}", table(value, indent + "  ")]
        else:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            lines.append(f"{indent}{key:36s} {text}")
    return "\n".join(lines)


def why_not_cuda(wanted: list[str]) -> str:
    """Return in one line why benchmarks cannot run on a GPU, or an empty text."""
    import torch

    without = [name for name in wanted if not hasattr(load(name), "run_cuda")]
    if without:
        return f"--device cuda: {', '.join(without)} has no benchmark on a GPU"
    if not torch.cuda.is_available():
        return "--device cuda: torch sees no GPU here, so nothing was measured"
    return ""


def save(name: str, figures: dict, device: str) -> None:
    from _measure import machine

    from scitoolkit import __version__

    if "processor" not in figures:
        figures = {"machine": machine(), **figures}  # where a benchmark does not store it itself
    figures = {**figures, "version": __version__}
    text = json.dumps({**figures, "date": time.strftime("%Y-%m-%d")}, indent=1)
    suffix = "" if device == "cpu" else f"_{device}"
    (RESULTS / f"{name}{suffix}.json").write_text(text + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"one of: {', '.join(names())}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", action="store_true", help="keep in benchmarks/results/")
    parser.add_argument("--all", action="store_true", help="run every benchmark")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to run")
    options = parser.parse_args(argv)
    wanted = names() if options.all else options.name
    unknown = [name for name in wanted if name not in names()]
    if unknown or not wanted:
        parser.error(f"unknown benchmark {', '.join(unknown) or '(none given)'}; {names()}")
    if options.device == "cuda":
        why = why_not_cuda(wanted)
        if why:
            print(f"run.py: {why}", file=sys.stderr)
            return 2
    results, failed = {}, []
    for name in wanted:
        try:
            results[name] = run(name, options.device)
        except Exception:
            if len(wanted) == 1:
                raise
            traceback.print_exc()
            failed.append(name)  # hours of other benchmarks are not lost with it
            continue
        if options.save:
            save(name, results[name], options.device)
    figures = results[wanted[0]] if len(wanted) == 1 else results
    print(json.dumps(figures) if options.json else table(figures))
    if failed:
        print(f"run.py: not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
