"""Everything that needs a GPU, in one call of at most 8 minutes: `make gpu`.

    python3 benchmarks/gpu/_gpu.py [--seconds 470] [--only floors,tests,jobs,kernels,fields]
                                   [--site PACKAGES]... [--peers PACKAGES]... [--out FILE] [--again]

The rungs, in order of worth per second: rates of the card; the tests marked `gpu` or `device`; jobs
of the workflows on the GPU against the CPU; kernels against other packages; memory and feeding.
Each is a separate process group, stopped at its limit, and stored in
`results/gpu_DEVICE_DATE.json` when it ends; a second call continues with what has not passed.
PACKAGES is a folder or a tar archive of installed packages, for machines without a network; those
of `--peers` are seen only by the comparisons. A peer that is missing is reported and is no failure.
Needs torch, but no installation of scitoolkit.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from _places import FOLDERS, RESULTS, ROOT

HERE = Path(__file__).resolve().parent
FIGURES = "FIGURES "  # begins a line of a rung that holds figures, see `_gpu_timing.tell`
GROUPS = ("floors", "tests", "jobs", "kernels", "fields")
BESIDE = max(1, min(12, (os.cpu_count() or 1) - 4))  # processes beside those that are measured
# Not timed against the CPU: what they show is that they run, end and keep the loss.
WITHOUT_CPU = ("comet", "sharded", "compile")


@dataclass
class Rung:
    """One process and its limit, seconds.

    Rungs `beside` run together: tests, jobs, and the compilation of kernels. What is `measured`
    runs alone when all of them have ended; if it is `early`, it has been started with them and
    waits with its models built and compiled, see `_gpu_timing.await_turn`.
    """

    name: str
    group: str
    command: list[str]
    seconds: float
    peers: bool = False
    beside: bool = False
    measured: bool = False
    early: bool = False
    environment: dict[str, str] = field(default_factory=dict)


def rungs(folder: str) -> Iterator[Rung]:
    """Yield all rungs in order."""
    from_here = {"SCITOOLKIT_BENCH_WARM": "1"}
    yield Rung("floors", "floors", [str(HERE / "_gpu_floors.py")], 40)
    for name, command in _tests().items():
        yield Rung(f"device tests of {name}", "tests", command, 170, beside=True)
    for kind, name in (("float32", n) for n in PRODUCTS):
        command = [str(HERE / "_gpu_products.py"), kind, name]
        yield Rung(f"warm {name}", "kernels", command, 150, True, True, environment=from_here)
    for name in _jobs():  # both devices share the machine with the tests: speed-ups are no more
        yield _job(name, "cuda", folder, 170)  # than lower bounds
        if name not in WITHOUT_CPU:
            yield _job(name, "cpu", folder, 170)
    for name, group, command, most in MEASURED:
        whole = [str(HERE / command[0]), *command[1:]]
        early = name in EARLY
        yield Rung(name, group, whole, most, group == "kernels", measured=True, early=early)


MEASURED: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    ("products float32", "kernels", ("_gpu_products.py", "float32"), 100),
    ("mace float32", "kernels", ("_gpu_potentials.py", "mace", "float32"), 300),
    ("gcn", "kernels", ("_gpu_graphs.py", "gcn"), 300),
    ("gat", "kernels", ("_gpu_graphs.py", "gat"), 300),
    ("se_e2_a float64", "kernels", ("_gpu_potentials.py", "deepmd", "float64"), 300),
    ("mace float64", "kernels", ("_gpu_potentials.py", "mace", "float64"), 300),
    ("se_e2_a float32", "kernels", ("_gpu_potentials.py", "deepmd", "float32"), 300),
    ("fields feed", "fields", ("_gpu_fields.py", "feed"), 80),
    ("fields comet", "fields", ("_gpu_fields.py", "comet"), 60),
)
"""Name, group, command and limit in seconds of what is measured alone, by worth per second."""

EARLY = ("mace float32", "mace float64", "gcn", "gat")
"""Rungs that take longer to build and compile their models than to measure them."""


PRODUCTS = (
    "mace-medium",
    "mace-large",
    "mace-64-L2",
    "nequip-water",
    "nequip-lips",
    "revmd17-aspirin",
    "sevennet-first",
)


def _jobs() -> list[str]:
    """Return the names of the jobs, read from the text so that torch is not imported here."""
    text = (HERE / "_gpu_jobs.py").read_text(encoding="utf-8")
    return re.findall(r'^    "([^"]+)": \(', text, re.MULTILINE)


def _job(name: str, device: str, folder: str, seconds: float) -> Rung:
    place = f"{folder}/{name.replace(' ', '_')}_{device}"
    command = [str(HERE / "_gpu_jobs.py"), name, device, place]
    threads = {"OMP_NUM_THREADS": "4" if device == "cpu" else "2"}
    if device == "cpu":
        threads["CUDA_VISIBLE_DEVICES"] = ""
    rung = f"job {name} {device}"
    return Rung(rung, "jobs", command, seconds, beside=True, environment=threads)


def device_files(*marks: str) -> list[str]:
    """Return the test files with a part for devices, and those with one of the marks."""
    contract = ROOT / "tests" / "unit" / "test_device_contract.py"
    has_part = runpy.run_path(str(contract))["HAS_PART"]
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path != contract
    }
    return [
        str(path.relative_to(ROOT))
        for path, text in texts.items()
        if has_part.search(text) or any(f"mark.{mark}" in text for mark in marks)
    ]


def _tests() -> dict[str, list[str]]:
    """Return the commands of the tests, in groups that each end in time."""
    groups: dict[str, list[str]] = {"operations": [], "potentials": [], "others": []}
    for path in device_files("gpu"):
        name = "operations" if "/ops/" in path else "others"
        groups["potentials" if "potentials" in path or "plugins" in path else name].append(path)
    options = ["-v", "-rfE", "--tb=line", "-p", "no:cacheprovider", "-p", "no:benchmark"]
    # Packages of the machine, which no lock file chose.
    options += ["-W", "ignore::DeprecationWarning"]
    options += ["-m", "gpu or (device and not slow)"]
    if importlib.util.find_spec("xdist"):
        options += ["-n", str(min(4, max(1, (os.cpu_count() or 1) // 4)))]
    if importlib.util.find_spec("pytest_timeout"):
        options += ["--timeout=100"]
    return {name: ["-m", "pytest", *options, *files] for name, files in groups.items() if files}


class Ladder:
    """Runs rungs within a time, and stores the results after each one.

    Args:
        path: JSON file of the results, continued if it is there.
        head: device, versions and date, stored with the results.
        seconds: of everything.
        environment: of the rungs; `peers` is added to that of comparisons.
        again: measure also what is stored as passed.
    """

    def __init__(
        self,
        path: Path,
        head: dict[str, Any],
        seconds: float,
        environment: dict[str, str],
        peers: dict[str, str],
        *,
        again: bool = False,
    ) -> None:
        self._path, self._head, self._end = path, head, time.monotonic() + seconds
        self._environment, self._peers = environment, peers
        self._lock, self._groups = threading.Lock(), set[int]()
        self._gates = Path(tempfile.mkdtemp(prefix="gates_"))
        self.results: dict[str, Any] = {}
        if path.exists() and not again:
            self.results = json.loads(path.read_text(encoding="utf-8")).get("rungs", {})

    def left(self) -> float:
        """Return the seconds that are left."""
        return self._end - time.monotonic()

    def climb(self, all_rungs: list[Rung]) -> dict[str, Any]:
        """Run the rungs, those `beside` in their threads; return all results by name."""
        todo = [r for r in all_rungs if self.results.get(r.name, {}).get("state") != "passed"]
        with ThreadPoolExecutor(BESIDE) as pool, ThreadPoolExecutor(len(EARLY)) as waiting:
            for rung in todo:
                if rung.group == "floors":
                    self._run(rung)
            early = {r.name: waiting.submit(self._run, r) for r in todo if r.early}
            together = [pool.submit(self._run, rung) for rung in todo if rung.beside]
            for future in together:
                _result(future)
            for rung in todo:
                if rung.early:
                    self._gate(rung).touch()
                    _result(early[rung.name])
                elif not rung.beside and rung.group != "floors":
                    self._run(rung)
        shutil.rmtree(self._gates, ignore_errors=True)
        return self.results

    def _gate(self, rung: Rung) -> Path:
        """Return the file whose existence lets an early rung measure."""
        return self._gates / rung.name.replace(" ", "_")

    def stop(self) -> None:
        """End every process that was started."""
        self._end = 0.0
        for group in list(self._groups):
            _kill(group)

    def _run(self, rung: Rung) -> None:
        most = min(rung.seconds, self.left())
        if most < min(8, rung.seconds):
            self._save(rung.name, {"state": "no time"})
            return
        environment = {**os.environ, **self._environment, **rung.environment}
        if rung.early:
            environment["SCITOOLKIT_BENCH_GATE"] = str(self._gate(rung))
        if rung.peers:
            environment |= self._peers
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [sys.executable, "-u", *rung.command],
                cwd=ROOT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._groups.add(process.pid)
            if self._end == 0.0:  # stopped while the process was being started
                _kill(process.pid)
            try:
                process.wait(timeout=most)
                state = "failed" if process.returncode else "passed"
            except subprocess.TimeoutExpired:
                state = "too long"
            finally:
                _kill(process.pid)  # what it started, too
                process.wait()
                self._groups.discard(process.pid)
            output.seek(0)
            text = output.read().decode("utf-8", "replace")
        result: dict[str, Any] = {
            "state": state,
            "wall_seconds": round(time.monotonic() - begin, 1),
        }
        if state == "failed":
            result["exit"] = process.returncode
        self._save(rung.name, {**result, **parsed(text, keep_text=state != "passed")})

    def _save(self, name: str, result: dict[str, Any]) -> None:
        with self._lock:
            self.results[name] = result
            whole = {**self._head, "rungs": self.results}
            whole["compared"] = compared(self.results)
            draft = self._path.with_suffix(".part")
            draft.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
            os.replace(draft, self._path)
            seconds = result.get("wall_seconds", 0.0)
            told = json.dumps(result.get("figures") or result.get("counts") or {})[:150]
            print(f"{result['state']:8s} {seconds:6.1f} s  {name}  {told}", flush=True)


def _result(future: Future[None]) -> None:
    """Wait for a rung; a signal that comes as the wait begins is handled within 0.2 s.

    A lock that is waited for without a limit hides such a signal until the lock is free.
    """
    while not wait([future], timeout=0.2).done:
        pass
    future.result()


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def parsed(text: str, *, keep_text: bool) -> dict[str, Any]:
    """Return the figures, the names of failed tests and, if wanted, the end of an output."""
    figures: dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith(FIGURES):
            try:
                _merge(figures, json.loads(line[len(FIGURES) :]))
            except ValueError:
                continue  # a line cut where the process was stopped
    result: dict[str, Any] = {"figures": figures} if figures else {}
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.*)$", text, re.MULTILINE)
    running = re.findall(r"(?:FAILED|ERROR)\s+(tests/\S+::\S+)", text)  # if it was stopped
    if failed or running:
        result["failed_tests"] = failed or sorted(set(running))
    ends = re.findall(r"^=* ?((?:\d+ \w+, )*\d+ \w+) in [\d.]+s", text, re.MULTILINE)
    if ends:
        result["counts"] = {kind: int(n) for n, kind in re.findall(r"(\d+) (\w+)", ends[-1])}
    if keep_text:
        # Without the folders of the machine, since results are committed.
        end = text[-3000:].replace(f"{ROOT}/", "")
        result["said"] = re.sub(r"/[\w./-]*?/(?=site-packages/|python3)", "", end)
    return result


def _merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def compared(results: dict[str, Any]) -> dict[str, Any]:
    """Return, for each job that ran on both devices, differences of losses and the speed-up."""
    rows = {}
    for name in _jobs():
        gpu, cpu = (
            results.get(f"job {name} {device}", {}).get("figures", {}) for device in ("cuda", "cpu")
        )
        row: dict[str, Any] = {"state": results.get(f"job {name} cuda", {}).get("state", "not run")}
        if gpu.get("first_loss") is not None and cpu.get("first_loss") is not None:
            for key in ("first_loss", "last_loss"):
                size = max(abs(cpu[key]), 1e-30)
                row[f"{key}_difference"] = abs(gpu[key] - cpu[key]) / size
        if gpu.get("step_seconds") and cpu.get("step_seconds"):
            row["speedup"] = cpu["step_seconds"] / gpu["step_seconds"]
        if gpu.get("step_seconds"):
            row["step_ms"] = 1e3 * gpu["step_seconds"]
        rows[name] = row
    return rows


def _unpacked(packages: str, into: Path) -> Path:
    """Return the folder of packages, unpacked if it is an archive."""
    path = Path(packages)
    if path.is_dir():
        return path.resolve()
    place = into / f"packages{len(list(into.iterdir()))}"
    place.mkdir()
    try:
        with tarfile.open(path) as archive:
            archive.extractall(place, filter="fully_trusted")
    except tarfile.ReadError:  # a Python without the module of its compression
        subprocess.run(["tar", "-C", str(place), "-xf", str(path)], check=True)
    return place


def _entry_points(into: Path) -> list[Path]:
    """Return a folder that announces the plug-ins of this tree, if it is not installed."""
    try:
        importlib.metadata.version("scitoolkit")
        return []
    except importlib.metadata.PackageNotFoundError:
        import tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = into / "announced" / f"scitoolkit-{project['version']}.dist-info"
    folder.mkdir(parents=True)
    name = f"Metadata-Version: 2.1\nName: scitoolkit\nVersion: {project['version']}\n"
    (folder / "METADATA").write_text(name, encoding="utf-8")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items()), ""]
    (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    return [folder.parent]


def _device() -> dict[str, Any]:
    """Return name and versions of the GPU; the name is empty without one."""
    code = (
        "import json, torch; there = torch.cuda.is_available(); "
        "print(json.dumps({'device': torch.cuda.get_device_name() if there else '', "
        "'cuda': torch.version.cuda, 'torch': torch.__version__}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else {}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=470.0, help="of everything")
    parser.add_argument("--only", default="", help=f"of {', '.join(GROUPS)}, or names of rungs")
    parser.add_argument("--site", action="append", default=[], help="packages for every rung")
    parser.add_argument("--peers", action="append", default=[], help="packages to compare with")
    parser.add_argument("--out", type=Path, help="file of the results")
    parser.add_argument("--again", action="store_true", help="also what has passed")
    options = parser.parse_args(argv)
    head = {**_device(), "date": time.strftime("%Y-%m-%d")}
    tried = os.environ.get("SCITOOLKIT_BENCH_DEVICE") == "cpu"
    if not head.get("device") and not tried:
        print("make gpu: torch sees no GPU here, so nothing was run", file=sys.stderr)
        return 2
    slug = re.sub(r"[^a-z0-9]+", "-", (head.get("device") or "cpu").lower()).strip("-")
    path = options.out or RESULTS / f"gpu_{slug}_{head['date']}.json"
    folder = Path(tempfile.mkdtemp(prefix="gpu_"))
    try:
        common = [ROOT, *FOLDERS, *_entry_points(folder)]
        common += [_unpacked(each, folder) for each in options.site]
        peers = [_unpacked(each, folder) for each in options.peers]
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        joined = os.pathsep.join([*map(str, common), *filter(None, inherited)])
        environment = {"PYTHONPATH": joined}
        with_peers = os.pathsep.join([*map(str, peers), joined])
        ladder = Ladder(
            path,
            head,
            options.seconds,
            environment,
            # e3nn of mace-torch reads its constants by a full unpickling.
            {"PYTHONPATH": with_peers, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
            again=options.again,
        )

        received: list[int] = []

        def stopped(number: int, _: Any) -> None:
            # An exception would be lost where it came inside a `__del__`; stopped rungs end soon.
            received.append(number)
            ladder.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stopped)
        wanted = [each for each in options.only.split(",") if each]
        chosen = [
            r for r in rungs(str(folder / "runs")) if not wanted or {r.group, r.name} & {*wanted}
        ]
        results = ladder.climb(chosen)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if received:
        return 128 + received[0]
    print(f"{head.get('device') or 'cpu'}: results in {path}")
    for name, row in compared(results).items():
        print(f"  {name:24s} {json.dumps(row)}")
    for name, result in results.items():
        for test in result.get("failed_tests", [])[:40]:
            print(f"  {name}: {test[:160]}")
        for peer, why in result.get("figures", {}).get("missing", {}).items():
            print(f"  {name}: {peer}: {why[:200]}")
    bad = [name for name, result in results.items() if result["state"] != "passed"]
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
