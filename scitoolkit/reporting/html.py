"""One self-contained page: no script, no link outside, images inside the file.

Titles, names and labels come from files, so every one of them is escaped.
"""

from __future__ import annotations

import base64
import json
import re
import time
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import (
    FIELDS_NAME,
    FILE_NAME,
    Bars,
    Diagram,
    Figure,
    Lines,
    Maps,
    Parallel,
    Points,
    Results,
    Table,
)
from scitoolkit.core.run_directory import RunDirectory, disk_error, write_atomic
from scitoolkit.reporting.tables import (
    best_rows,
    format_column,
    formatted_rows,
    is_numeric_column,
    split_unit,
)

if TYPE_CHECKING:
    import xarray as xr

_STYLE = """
:root{color-scheme:light dark;--text:#1c2126;--soft:#5a6570;--line:#d9dee3;--page:#fff;
--card:#f6f8fa;--best:#e3f1fb}
@media(prefers-color-scheme:dark){:root{--text:#e6e9ec;--soft:#a3adb7;--line:#3a424a;--page:#14181c;
--card:#1d2329;--best:#173a54}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:62rem;background:var(--page);
color:var(--text);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
overflow-wrap:anywhere}
h1{font-size:1.7rem;line-height:1.25;margin:.2rem 0 .6rem}
h2{font-size:1.2rem;margin:2.4rem 0 .8rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}
.soft,figcaption,caption .note{color:var(--soft)}
.meta{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;margin:.8rem 0;font-size:.88rem}
.scroll{overflow-x:auto;margin:1rem 0 1.6rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.94rem;
overflow-wrap:normal}
caption{text-align:left;font-weight:600;padding:.3rem 0}
caption .note{display:block;font-weight:400;font-size:.88rem}
th,td{padding:.35rem .9rem .35rem .4rem;text-align:left;border-bottom:1px solid var(--line)}
thead th{border-bottom:2px solid var(--soft);vertical-align:bottom;line-height:1.2}
tbody th{font-weight:500}
.n{text-align:right;padding:.35rem .5rem .35rem .9rem}
.unit{display:block;font-weight:400;font-size:.82rem;color:var(--soft)}
.best{background:var(--best);font-weight:700}
figure{margin:1.2rem 0 2rem}
figure img{display:block;max-width:100%;height:auto;background:#fff;border:1px solid var(--line);
border-radius:6px;padding:.4rem}
figcaption{font-size:.88rem;margin-top:.4rem}
details{background:var(--card);border:1px solid var(--line);border-radius:6px;margin:.6rem 0;
padding:.4rem .9rem}
summary{cursor:pointer;font-weight:600}
pre{overflow-x:auto;font-size:.84rem;line-height:1.4}
"""


def write_report(run_path: Path) -> Path:
    """Draw the report of a run directory: `report/index.html`, and its images beside it.

    The page replaces the one before it only when it is complete.

    Args:
        run_path: a run directory with config.yaml and results.json; results.nc when the results
            describe maps; metrics.jsonl and env.json where there are any.

    Returns:
        The path of the page.

    Raises:
        DataError: a file of the run directory is missing or corrupt.
        ScitoolkitError: the report cannot be written.

    Example:
        >>> import tempfile
        >>> from scitoolkit.core.config import Config
        >>> run = RunDirectory.create(tempfile.mkdtemp(), "demo", Config())
        >>> _ = Results(title="A run").write(run.path)
        >>> write_report(run.path).name
        'index.html'
    """
    run = RunDirectory.open(run_path)
    results = Results.read(run.path)
    curves = _curves(run)
    images = _draw(run.path, curves, results.figures)
    page = _page(run, results, images, len(curves))
    target = run.report / "index.html"
    try:
        run.report.mkdir(parents=True, exist_ok=True)
        for name, image, _ in images:
            write_atomic(run.report / name, image)
        write_atomic(target, page)
        for stale in set(run.report.glob("[0-9][0-9]-*.png")) - {run.report / i[0] for i in images}:
            stale.unlink()
    except OSError as error:
        raise disk_error(error, run.report) from None
    return target


Image = tuple[str, bytes, Figure]


def _curves(run: RunDirectory) -> list[Lines]:
    from scitoolkit.reporting.figures import learning_curves

    try:
        return learning_curves(list(run.read_metrics()))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"not a log of metrics ({error})",
            where=str(run.metrics_path),
            allowed="one JSON object a line with name, value, unit, step",
            fix=f"remove {run.metrics_path}; the report is then drawn without curves",
        ) from None


def _draw(path: Path, curves: list[Lines], figures: list[Figure]) -> list[Image]:
    """Return name, PNG and description of every figure, curves first."""
    import xarray as xr

    from scitoolkit.reporting.animation import animated_maps
    from scitoolkit.reporting.figures import draw_maps, to_png
    from scitoolkit.reporting.plots import draw_plot

    needs_fields = any(isinstance(f, Maps) and f.panels for f in figures)
    fields = _read_fields(path) if needs_fields else xr.Dataset()
    images: list[Image] = []
    for index, spec in enumerate([*curves, *figures]):
        if isinstance(spec, Maps):
            animated = spec.animate and spec.panels
            image = animated_maps(spec, fields) if animated else to_png(draw_maps(spec, fields))
        else:
            image = to_png(draw_plot(spec))
        images.append((f"{index + 1:02d}-{_slug(spec.title)}.png", image, spec))
    return images


def _read_fields(path: Path) -> xr.Dataset:
    import xarray as xr

    file = path / FIELDS_NAME
    fix = f"scitoolkit evaluate {path}"
    if not file.is_file():
        raise DataError("no fields for the maps of the report", where=str(file), fix=fix)
    try:
        with xr.open_dataset(file, engine="h5netcdf") as fields:
            return fields.load()
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise DataError(f"not a readable NetCDF file ({error})", where=str(file), fix=fix) from None


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:40] or "figure"


def _page(run: RunDirectory, results: Results, images: list[Image], num_curves: int) -> str:
    body = [
        f"<header>\n<h1>{escape(results.title)}</h1>",
        *(f"<p>{escape(sentence)}</p>" for sentence in results.summary),
        _meta(run),
        "</header>\n<main>",
        *_section("Results", [_table(table) for table in [*results.tables, *_metrics(results)]]),
        *_section("Training", [_figure(image) for image in images[:num_curves]]),
        *_section("Figures", [_figure(image) for image in images[num_curves:]]),
        "</main>\n<footer>",
        *_section("How it was made", _details(run)),
        "</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(results.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _section(title: str, parts: list[str]) -> list[str]:
    return [f"<section>\n<h2>{title}</h2>", *parts, "</section>"] if parts else []


def _metrics(results: Results) -> list[Table]:
    if not results.metrics:
        return []
    # Quantities of different kinds have no digits in common: each is formatted by itself.
    rows: list[list[float | int | str | None]] = [
        [name, format_column([value])[0], results.units.get(name, "")]
        for name, value in results.metrics.items()
    ]
    return [Table(title="Figures of merit", columns=["name", "value", "unit"], rows=rows)]


def _table(table: Table) -> str:
    best = best_rows(table)
    classes = [' class="n"' if is_numeric_column(table, j) else "" for j in range(len(best))]
    head = "".join(
        f'<th scope="col"{css}>{_head(name)}</th>'
        for name, css in zip(table.columns, classes, strict=True)
    )
    rows = "\n".join(
        f"<tr>{''.join(_cell(c, j, i in best[j], classes[j]) for j, c in enumerate(row))}</tr>"
        for i, row in enumerate(formatted_rows(table))
    )
    notes = [table.note, "Best of each column marked." if any(best) else ""]
    note = " ".join(escape(text) for text in notes if text)
    note = f'<span class="note">{note}</span>' if note else ""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">'
        f"<table>\n<caption>{escape(table.title)}{note}</caption>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>"
    )


def _head(column: str) -> str:
    name, unit = split_unit(column)
    return escape(name) + (f' <span class="unit">{escape(unit)}</span>' if unit else "")


def _cell(text: str, column: int, best: bool, css: str) -> str:
    if column == 0:
        return f'<th scope="row"{css}>{escape(text)}</th>'
    if best:
        return f'<td class="n best" title="best of its column">{escape(text)}</td>'
    return f"<td{css}>{escape(text)}</td>"


def _figure(image: Image) -> str:
    _, png, spec = image
    data = base64.b64encode(png).decode("ascii")
    alt = escape(_alternative(spec))
    note = f"\n<figcaption>{escape(spec.note)}</figcaption>" if spec.note else ""
    return f'<figure>\n<img alt="{alt}" src="data:image/png;base64,{data}">{note}\n</figure>'


def _alternative(spec: Figure) -> str:
    if isinstance(spec, Maps):
        unit = f", in {spec.unit}" if spec.unit else ""
        return f"Maps: {spec.title}: {', '.join(p.label for p in spec.panels) or 'none'}{unit}"
    if isinstance(spec, Bars):
        values = ", ".join(f"{n} {v:.3g}" for n, v in zip(spec.labels, spec.values, strict=True))
        return f"Bars: {spec.title}: {spec.x_label}; {values or 'none'}"
    if isinstance(spec, Parallel):
        axes = ", ".join(axis.label for axis in spec.axes)
        return f"Parallel coordinates: {spec.title}: {axes}; coloured by {spec.colour_label}"
    if isinstance(spec, Diagram):
        arrows = ", ".join(f"{spec.boxes[a]} to {spec.boxes[b]}" for a, b in spec.arrows)
        return f"Diagram: {spec.title}: {arrows}"
    labels = ", ".join(series.label for series in spec.series) or "none"
    kind = "Points" if isinstance(spec, Points) else "Lines"
    return f"{kind}: {spec.title}: {spec.y_label} over {spec.x_label}; {labels}"


def _environment(run: RunDirectory) -> dict[str, Any]:
    """Return env.json, or nothing: a report does not fail for want of it."""
    try:
        found = json.loads((run.path / "env.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _meta(run: RunDirectory) -> str:
    environment = _environment(run)
    packages = environment.get("packages")
    version = packages.get("scitoolkit") if isinstance(packages, dict) else None
    evaluated = time.gmtime((run.path / FILE_NAME).stat().st_mtime)
    facts = {
        "Run": run.path.resolve().name,
        "Evaluated": time.strftime("%Y-%m-%d %H:%M UTC", evaluated),
        "scitoolkit": version or "not recorded",
        "Revision": environment.get("git") or "not recorded",
    }
    items = "".join(
        f'<span><span class="soft">{name}</span> {escape(str(value))}</span>'
        for name, value in facts.items()
    )
    return f'<div class="meta">{items}</div>'


def _details(run: RunDirectory) -> list[str]:
    config = run.config_path.read_text(encoding="utf-8", errors="replace")
    environment = json.dumps(_environment(run), indent=1, ensure_ascii=False)
    return [
        "<p>The same run again: <code>scitoolkit train config.yaml</code>, with the configuration "
        "below.</p>",
        f"<details><summary>Configuration</summary><pre>{escape(config)}</pre></details>",
        f"<details><summary>Environment</summary><pre>{escape(environment)}</pre></details>",
    ]
