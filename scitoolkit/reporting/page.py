"""The report as one self-contained HTML page: no scripts, no external links, embedded images.

The first screen shows the verdict and the figure that supports it; details are folded.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.core.errors import DataError
from scitoolkit.core.files import disk_error, write_atomic
from scitoolkit.core.results import (
    FIELDS_NAME,
    FILE_NAME,
    Bars,
    Diagram,
    Figure,
    Lines,
    Maps,
    Multiples,
    Parallel,
    Points,
    Results,
    Table,
    display_unit,
)
from scitoolkit.core.run_directory import RUN_ROOT, RunDirectory
from scitoolkit.reporting.style import display_text
from scitoolkit.reporting.tables import (
    best_rows,
    format_column,
    formatted_rows,
    is_numeric_column,
    split_unit,
)

if TYPE_CHECKING:
    import xarray as xr
    from jinja2 import Template

MOST_FIGURES = 8
"""Figures that a report shows unfolded, in addition to the one that supports its verdict."""

_LONG = 40  # characters of a cell from which its column gets a minimum width


def write_report(run_path: Path) -> Path:
    """Draw the report of a run directory: `report/index.html`, and its images next to it.

    The previous page is replaced only once the new one is complete.

    Args:
        run_path: a run directory with config.yaml and results.json; also results.nc if the results
            contain maps, and optionally metrics.jsonl and env.json.

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
    page = _page(run, results, images)
    target = run.report / "index.html"
    try:
        run.report.mkdir(parents=True, exist_ok=True)
        for stale in run.report.glob(".*.tmp"):  # of a process that was killed
            stale.unlink()
        for image in images:
            write_atomic(run.report / image.name, image.png)
        write_atomic(target, page)
        for stale in set(run.report.glob("[0-9][0-9]-*.png")) - {
            run.report / i.name for i in images
        }:
            stale.unlink()
    except OSError as error:
        raise disk_error(error, run.report, RUN_ROOT) from None
    return target


@dataclass(frozen=True)
class Image:
    """One drawn figure: its file name, PNG, alternative text and caption."""

    name: str
    png: bytes
    alt: str
    note: str = ""
    is_training: bool = False
    has_panels: bool = False
    narrow: bytes = b""  # PNG for phones, its panels below each other

    @property
    def is_wide(self) -> bool:
        """Whether the image has panels that are readable only over the whole width of a page."""
        width, height = struct.unpack(">II", self.png[16:24])
        return self.has_panels and width > 2.0 * height

    @property
    def data(self) -> str:
        """The PNG in base64."""
        return base64.b64encode(self.png).decode("ascii")

    @property
    def narrow_data(self) -> str:
        """The narrow PNG in base64, "" without one."""
        return base64.b64encode(self.narrow).decode("ascii")


def _curves(run: RunDirectory) -> list[Lines]:
    from scitoolkit.reporting.lines import learning_curves

    try:
        return learning_curves(_of_training(run.read_metrics()))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"not a log of metrics ({error})",
            where=str(run.metrics_path),
            allowed="one JSON object a line with name, value, unit, step",
            fix=f"remove {run.metrics_path}; the report is then drawn without curves",
        ) from None


def _of_training(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the logged values of data splits, such as `train/loss`, logged more than once."""
    training_rows = [row for row in rows if "/" in str(row["name"])]
    count = Counter(str(row["name"]) for row in training_rows)
    return [row for row in training_rows if count[str(row["name"])] > 1]


def _draw(path: Path, curves: list[Lines], figures: list[Figure]) -> list[Image]:
    """Return the images of a report: its figures, then one with all learning curves."""
    import xarray as xr

    from scitoolkit.reporting.lines import draw_multiples
    from scitoolkit.reporting.style import to_png

    needs_fields = any(isinstance(f, Maps) and f.panels for f in figures)
    fields = _read_fields(path) if needs_fields else xr.Dataset()
    images = [
        Image(
            f"{i + 1:02d}-{_slug(f.title)}.png",
            _png(f, fields),
            _alternative(f),
            display_text(f.note),
            has_panels=isinstance(f, Maps | Multiples),
            narrow=b""
            if isinstance(f, Maps) and len(f.panels) < 2
            else _png(f, fields, narrow=True),
        )
        for i, f in enumerate(figures)
    ]
    if curves:
        name, alt = f"{len(figures) + 1:02d}-training.png", "; ".join(map(_alternative, curves))
        images.append(
            Image(
                name,
                to_png(draw_multiples(curves)),
                alt,
                is_training=True,
                has_panels=True,
                narrow=to_png(draw_multiples(curves, narrow=True)),
            )
        )
    return images


def _png(spec: Figure, fields: xr.Dataset, *, narrow: bool = False) -> bytes:
    """Return a figure as PNG, for the width of a phone if `narrow`."""
    from scitoolkit.reporting.animation import animated_maps
    from scitoolkit.reporting.maps import draw_maps
    from scitoolkit.reporting.plots import draw_plot
    from scitoolkit.reporting.style import to_png

    if not isinstance(spec, Maps):
        return to_png(draw_plot(spec, narrow=narrow))
    if spec.animate and spec.panels:
        return animated_maps(spec, fields, narrow=narrow)
    return to_png(draw_maps(spec, fields, narrow=narrow))


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


def _page(run: RunDirectory, results: Results, images: list[Image]) -> str:
    figures = [image for image in images if not image.is_training]
    return template("report.html").render(
        title=display_text(results.title),
        verdict=_prose(results.verdict.sentence) if results.verdict else "",
        summary=[_prose(line) for line in results.summary],
        lead=figures[0] if figures else None,
        tables=[shown_table(table) for table in results.tables],
        figures=figures[1 : 1 + MOST_FIGURES],
        more=figures[1 + MOST_FIGURES :],
        training=next((image for image in images if image.is_training), None),
        metrics=_metrics(results),
        facts=_facts(run),
        config=run.config_path.read_text(encoding="utf-8", errors="replace"),
        environment=json.dumps(_environment(run), indent=1, ensure_ascii=False),
    )


def _prose(text: str) -> str:
    """Return a sentence with units as printed, and without line breaks before a percent sign."""
    return display_text(text).replace(" %", "\N{NO-BREAK SPACE}%")


def template(name: str) -> Template:
    """Return a page template with escaping, because titles and labels come from files."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("scitoolkit.reporting", ".")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined).get_template(name)


def _metrics(results: Results) -> dict[str, Any] | None:
    if not results.metrics:
        return None
    # Quantities of different kinds are formatted individually, not with common digits.
    rows: list[list[float | int | str | None]] = [
        [name, format_column([value])[0], display_unit(results.units.get(name, ""))]
        for name, value in results.metrics.items()
    ]
    return shown_table(Table(title="Metrics", columns=["name", "value", "unit"], rows=rows))


def shown_table(table: Table) -> dict[str, Any]:
    """Return the template variables of a table: headers and cells as text, with alignment."""
    best = best_rows(table)
    numbers = [is_numeric_column(table, j) for j in range(len(best))]
    texts = formatted_rows(table)
    long = [max((len(row[j]) for row in texts), default=0) > _LONG for j in range(len(best))]
    notes = [display_text(table.note), "Best of each column marked." if any(best) else ""]
    return {
        "title": display_text(table.title),
        "note": " ".join(text for text in notes if text),
        "heads": [
            dict(zip(("name", "unit"), split_unit(column), strict=True), number=number)
            for column, number in zip(table.columns, numbers, strict=True)
        ],
        "rows": [
            [
                {"text": text, "best": i in best[j], "number": numbers[j], "long": long[j]}
                for j, text in enumerate(row)
            ]
            for i, row in enumerate(texts)
        ],
    }


def _alternative(spec: Figure) -> str:
    if isinstance(spec, Multiples):
        return f"Small multiples: {spec.title}: {', '.join(p.title for p in spec.panels)}"
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
    """Return env.json, or {} if it is missing or damaged."""
    try:
        environment = json.loads((run.path / "env.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return environment if isinstance(environment, dict) else {}


def _facts(run: RunDirectory) -> dict[str, str]:
    environment = _environment(run)
    packages = environment.get("packages")
    version = packages.get("scitoolkit") if isinstance(packages, dict) else None
    evaluated = time.gmtime((run.path / FILE_NAME).stat().st_mtime)
    return {
        "Run": run.path.resolve().name,
        "Evaluated": time.strftime("%Y-%m-%d %H:%M UTC", evaluated),
        "scitoolkit": str(version or "not recorded"),
        "Revision": str(environment.get("git") or "not recorded"),
    }
