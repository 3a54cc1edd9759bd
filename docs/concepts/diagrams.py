"""Write the drawings of the concept pages: `python docs/concepts/diagrams.py`.

SVG instead of a diagram language, so that pages need no script from another host.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

Drawing = tuple[int, int, list[str]]  # width, height, elements
FOLDER = Path(__file__).parent
LINE, TEXT, FILLS = "#546e7a", "#263238", {"plain": "#eceff1", "main": "#c5cae9", "disk": "#ffe0b2"}
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" font-family="sans-serif">'
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>'
    '<rect width="{w}" height="{h}" rx="8" fill="white"/>'
)


def box(x: int, y: int, w: int, h: int, title: str, *lines: str, kind: str = "plain") -> str:
    """Return a box with a title and further lines, centred."""
    parts = [
        f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5" fill="{FILLS[kind]}" '
        f'stroke="{LINE}"/>'
    ]
    top = y + h / 2 + 5 - 9 * len(lines)
    for number, line in enumerate((title, *lines)):
        weight = ' font-weight="bold"' if number == 0 else ""
        parts.append(text(x + w / 2, top + 18 * number, line, 14 if number == 0 else 12, weight))
    return "".join(parts)


def text(x: float, y: float, words: str, size: int = 12, more: str = "") -> str:
    """Return centred text."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle" fill="{TEXT}"{more}>'
        f"{escape(words)}</text>"
    )


def arrow(*points: int, label: str = "", at: tuple[int, int] | None = None) -> str:
    """Return a line through points (x1, y1, x2, y2, ...) that ends in a head."""
    path = " L".join(f"{x} {y}" for x, y in zip(points[::2], points[1::2], strict=True))
    drawn = f'<path d="M{path}" fill="none" stroke="{LINE}" marker-end="url(#a)"/>'
    return drawn + (text(*at, label) if at else "")


def architecture() -> Drawing:
    """Return the layers of the package."""
    rows = [
        ["cli", "testing"],
        ["api"],
        ["search", "deploy"],
        [
            "potentials",
            "superresolution",
            "forecasting",
            "emulation",
            "compression",
            "graphs",
            "generators",
            "scaling",
        ],
        ["reporting", "training"],
        ["io", "ops"],
        ["core"],
    ]
    parts = []
    for number, names in enumerate(rows):
        wide = (960 - 10 * (len(names) - 1)) // len(names)
        kind = "main" if len(names) > 2 else "plain"
        for place, name in enumerate(names):
            parts.append(box(20 + place * (wide + 10), 20 + 54 * number, wide, 40, name, kind=kind))
    parts.append(arrow(1010, 30, 1010, 380))
    parts.append(text(1050, 205, "imports"))
    return 1100, 410, parts


def data_flow() -> Drawing:
    """Return the stages from files to report."""
    parts = []
    first = ["files", "sample index", "split", "statistics", "loader", "batch"]
    second = ["report", "Results", "evaluate", "checkpoint", "Trainer", "Task"]
    for number, name in enumerate(first):
        parts.append(
            box(20 + 165 * number, 20, 130, 44, name, kind="disk" if not number else "plain")
        )
        if number:
            parts.append(arrow(20 + 165 * number - 35, 42, 20 + 165 * number, 42))
    disk = {"report", "Results", "checkpoint"}
    for number, name in enumerate(second):
        kind = "disk" if name in disk else "plain"
        parts.append(box(20 + 165 * number, 110, 130, 44, name, kind=kind))
        if number:
            parts.append(arrow(20 + 165 * number, 132, 20 + 165 * number - 35, 132))
    parts += [arrow(910, 64, 910, 110), box(515, 200, 130, 44, "export", kind="disk")]
    parts.append(arrow(580, 154, 580, 200))
    parts.append(text(150, 226, "orange: stored on disk"))
    return 1010, 264, parts


def training() -> Drawing:
    """Return the training loop with its communication and state."""
    parts = [
        box(20, 40, 150, 60, "Loader", "share of this rank"),
        box(230, 40, 150, 60, "Task", "model, loss", kind="main"),
        box(440, 40, 150, 60, "backward", "gradients"),
        box(650, 40, 150, 60, "exchange", "sum over ranks"),
        box(860, 40, 150, 60, "optimizer", "step, schedule"),
        arrow(170, 70, 230, 70, label="batch", at=(200, 62)),
        arrow(380, 70, 440, 70),
        arrow(590, 70, 650, 70),
        arrow(800, 70, 860, 70),
        arrow(935, 40, 935, 18, 95, 18, 95, 40, label="next step", at=(515, 13)),
        box(650, 160, 360, 60, "strategy", "single, ddp, sharded, graph, spatial: who holds what"),
        arrow(725, 160, 725, 100),
        arrow(935, 160, 935, 100),
        box(
            20,
            160,
            570,
            60,
            "agreement once a step",
            "number of samples, stop signals, errors of any rank",
        ),
        arrow(305, 160, 305, 100),
        box(
            20,
            270,
            990,
            60,
            "checkpoint",
            "model · optimizer · schedule · weight average · "
            "random states of every rank · cursor of the loader · exchange",
            kind="disk",
        ),
        arrow(500, 220, 500, 270, label="save", at=(522, 250)),
        arrow(560, 270, 560, 220, label="resume", at=(590, 250)),
    ]
    return 1030, 350, parts


def search() -> Drawing:
    """Return the processes of a search."""
    parts = [
        box(330, 120, 200, 70, "manager", "one per search", kind="main"),
        box(20, 120, 190, 70, "strategy", "proposes configurations"),
        arrow(330, 140, 210, 140, label="ask, observe", at=(270, 132)),
        arrow(210, 172, 330, 172, label="proposal", at=(270, 188)),
        box(330, 20, 200, 50, "space", "parameters, conditions"),
        arrow(430, 70, 430, 120),
        box(330, 250, 200, 60, "trials.jsonl", "append-only log", kind="disk"),
        arrow(410, 190, 410, 250, label="every event", at=(366, 224)),
        arrow(470, 250, 470, 190, label="replay on --resume", at=(540, 224)),
        arrow(330, 280, 115, 280, 115, 190, label="issue, observe", at=(220, 272)),
    ]
    for number in range(3):
        y = 60 + 70 * number
        parts.append(box(700, y, 190, 50, f"worker {number + 1}", "process, Ray, MPI"))
        parts.append(arrow(530, 155, 700, y + 25))
    parts.append(text(600, 96, "trial, result"))
    parts += [
        box(700, 280, 190, 50, "finalists", "trained with new seeds"),
        arrow(530, 280, 615, 280, 615, 305, 700, 305),
    ]
    return 910, 350, parts


def run_directory() -> Drawing:
    """Return the files of a run and their uses."""
    parts = [
        box(20, 105, 160, 60, "scitoolkit run", "train, evaluate, report", kind="main"),
        box(250, 20, 360, 230, ""),
        text(430, 42, "runs/<workflow>/<UTC>-<hash>/", 14, ' font-weight="bold"'),
        arrow(180, 135, 250, 135, label="writes", at=(215, 127)),
    ]
    names = [
        "config.yaml",
        "env.json, run.log, metrics.jsonl",
        "checkpoints/",
        "results.json, results.nc",
        "report/index.html",
    ]
    for number, name in enumerate(names):
        parts.append(box(270, 56 + 37 * number, 320, 30, name, kind="disk"))
    uses = [
        "run again: a valid input",
        "logs and curves",
        "--resume",
        "scitoolkit report",
        "any browser, no network",
    ]
    for number, use in enumerate(uses):
        y = 71 + 37 * number
        parts += [arrow(590, y, 690, y), text(790, y + 4, use, 13)]
    return 900, 270, parts


def configuration() -> Drawing:
    """Return the order of precedence of settings."""
    parts = [
        box(20, 20, 200, 50, "defaults", "of the package"),
        box(20, 85, 200, 50, "defaults of the domain", "e.g. 200 epochs"),
        box(20, 150, 200, 50, "file.yaml", "with x- sections", kind="disk"),
        box(20, 215, 200, 50, "section.key=value", "command line"),
        box(330, 105, 170, 70, "merge", "later wins, per key", kind="main"),
        box(570, 105, 170, 70, "validate", "all errors at once"),
        box(810, 105, 190, 70, "config.yaml", "resolved, in the run", kind="disk"),
        arrow(500, 140, 570, 140),
        arrow(740, 140, 810, 140),
        box(570, 215, 170, 50, "exit code 2", "file, line, nearest key"),
        arrow(655, 175, 655, 215, label="error", at=(680, 200)),
        arrow(905, 105, 905, 40, 415, 40, 415, 105, label="a valid input again", at=(660, 34)),
    ]
    for y, end in ((45, 120), (110, 132), (175, 146), (240, 160)):
        parts.append(arrow(220, y, 330, end))
    return 1020, 285, parts


def main() -> None:
    """Write all drawings."""
    for draw in (architecture, data_flow, training, search, run_directory, configuration):
        wide, high, parts = draw()
        name = draw.__name__.replace("_", "-")
        body = HEAD.format(w=wide, h=high) + "\n" + "\n".join(parts) + "\n</svg>\n"
        (FOLDER / f"{name}.svg").write_text(body, encoding="utf-8")


if __name__ == "__main__":
    main()
