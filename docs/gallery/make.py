"""Write the gallery: `scitoolkit tour`, then `python docs/gallery/make.py runs` (needs Chromium).

The page and its pictures come from the reports of a tour: of each the first screen, its title, its
verdict, and the command that makes it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from scitoolkit.core.results import Results

FOLDER = Path(__file__).parent
SCREEN, WIDTH, QUALITY = (1280, 900), 960, 68
HEAD = """# Gallery

This page shows the first screen of the report of each workflow that `scitoolkit tour` runs. Click a
picture to enlarge it. `python docs/gallery/make.py runs` writes the page after such a tour.
"""


def main(runs: Path) -> None:
    """Write page and pictures of the newest run of each workflow."""
    for old in FOLDER.glob("*.webp"):
        old.unlink()
    parts = [HEAD]
    for workflow in sorted(path for path in runs.iterdir() if path.is_dir()):
        reports = sorted(workflow.glob("*/report/index.html"))
        if reports:
            parts.append(section(workflow.name, reports[-1]))
    (FOLDER / "index.md").write_text("\n".join(parts), encoding="utf-8")


def section(workflow: str, report: Path) -> str:
    """Return the text on one report, and write its picture."""
    results = Results.read(report.parents[1])
    picture(report, FOLDER / f"{workflow}.webp")
    return (
        f"## {results.title}\n\n"
        f"`scitoolkit run {workflow}`\n\n"
        f"[![First screen of the report of {workflow}]({workflow}.webp)]({workflow}.webp)\n"
    )


def picture(report: Path, path: Path) -> None:
    """Write the first screen of a report as a picture of at most some tens of kilobytes."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        raise SystemExit("Chromium is not installed")
    with tempfile.TemporaryDirectory() as scratch:
        shot = Path(scratch) / "screen.png"
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--window-size={SCREEN[0]},{SCREEN[1]}",
                f"--user-data-dir={scratch}/profile",
                f"--screenshot={shot}",
                report.resolve().as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )
        with Image.open(shot) as image:
            size = (WIDTH, round(image.height * WIDTH / image.width))
            image.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(
                path, quality=QUALITY, method=6
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
