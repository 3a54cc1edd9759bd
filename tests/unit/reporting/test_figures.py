"""Figures: shared scales, orientation, missing values, and descriptions that do not fit."""

import io
import itertools

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from scitoolkit.core.errors import DataError
from scitoolkit.core.results import (
    Bars,
    Diagram,
    Lines,
    Maps,
    Multiples,
    Panel,
    Parallel,
    Points,
    Scale,
    Series,
)
from scitoolkit.reporting import animation
from scitoolkit.reporting import lines as line_plots
from scitoolkit.reporting import maps as map_plots
from scitoolkit.reporting.plots import draw_plot
from scitoolkit.reporting.style import to_png


@pytest.fixture
def fields():
    lat, lon = np.arange(60.0, -61.0, -30.0), np.arange(0.0, 360.0, 60.0)
    truth = np.add.outer(lat, lon / 100)
    truth[0, 0] = np.nan
    dims = ("lat", "lon")
    return xr.Dataset(
        {"truth": (dims, truth), "forecast": (dims, truth + 2), "error": (dims, truth * 0 + 2)},
        coords={"lat": lat, "lon": lon},
    )


def maps(*panels):
    return Maps(title="maps", unit="K", panels=list(panels))


def lines(*series, **options):
    return Lines(title="t", x=[1, 2, 3], x_label="x", y_label="y", series=list(series), **options)


def meshes(figure):
    return [m for axes in figure.axes for m in axes.collections if hasattr(m, "get_coordinates")]


def test_panels_of_a_scale_share_one_norm_over_all_their_values(fields):
    spec = maps(*(Panel(variable=v, label=v) for v in ("truth", "forecast")))
    norm = map_plots.scale_norms(spec, fields)["field"]
    assert norm.vmin == float(fields.truth.min())
    assert norm.vmax == float(fields.forecast.max())
    drawn = [m for m in meshes(map_plots.draw_maps(spec, fields)) if m.get_array().size == 30]
    assert len(drawn) == 2
    assert {(m.norm.vmin, m.norm.vmax) for m in drawn} == {(norm.vmin, norm.vmax)}


def test_a_diverging_scale_is_centred_on_zero(fields):
    spec = maps(Panel(variable="error", label="error", scale="error", diverging=True))
    norm = map_plots.scale_norms(spec, fields)["error"]
    assert norm.vmin == -norm.vmax == -2


def test_missing_cells_are_grey_and_north_is_up(fields):
    figure = map_plots.draw_maps(maps(Panel(variable="truth", label="truth")), fields)
    mesh = meshes(figure)[0]
    assert np.allclose(mesh.cmap.get_bad()[:3], float(map_plots.LAND))
    values = mesh.get_array()
    assert values.mask.sum() == 1
    assert values.mask[-1, 0]  # the northernmost row is drawn on top
    bottom, top = figure.axes[0].get_ylim()
    assert bottom < top


def test_the_order_of_latitude_and_of_dims_does_not_change_a_map(fields):
    spec = maps(Panel(variable="truth", label="truth"))
    image = to_png(map_plots.draw_maps(spec, fields))
    turned = fields.sortby("lat").transpose("lon", "lat")
    assert to_png(map_plots.draw_maps(spec, turned)) == image


@pytest.mark.parametrize("value", [np.nan, 0.0, 7.0])
def test_fields_of_one_value_are_drawn(value):
    data = xr.Dataset({"u": (("z", "x"), np.full((1, 3), value))})
    spec = maps(Panel(variable="u", label="u", diverging=True), Panel(variable="u", label="$u"))
    assert to_png(map_plots.draw_maps(spec, data))


def test_a_1d_selection_is_a_line(fields):
    figure = map_plots.draw_maps(
        maps(Panel(variable="truth", label="t", select={"lon": 0})), fields
    )
    assert len(figure.axes[0].lines) == 1


@pytest.mark.parametrize(
    ("panel", "word"),
    [
        (Panel(variable="nothing", label="p"), "truth, forecast, error"),
        (Panel(variable="truth", label="p", select={"time": 0}), "lat: 5"),
        (Panel(variable="truth", label="p", select={"lat": 9}), "lat: 5"),
        (Panel(variable="truth", label="p", select={"lat": 0, "lon": 0}), "1 or 2 dims"),
    ],
)
def test_a_panel_that_is_not_in_the_file_is_named(fields, panel, word):
    with pytest.raises(DataError, match=word):
        map_plots.draw_maps(maps(panel), fields)


def test_no_panels_and_no_values_are_said(fields):
    assert to_png(map_plots.draw_maps(maps(), fields))
    for spec in (lines(), lines(Series(label="a", y=[None, None, None]))):
        figure = line_plots.draw_lines(spec)
        assert [text.get_text() for text in figure.axes[0].texts] == ["no values"]


def test_gaps_and_single_points_are_drawn():
    gap = Series(label="$a", y=[1.0, None, 3.0], low=[0.5, None, 2], high=[2, None, 4])
    point = Series(label="b", y=[None, 2.0, None], role="baseline")
    figure = line_plots.draw_lines(lines(gap, point, log_y=True))
    assert to_png(figure).startswith(b"\x89PNG")
    assert any(line.get_marker() == "o" for line in figure.axes[0].lines)


def test_a_series_of_another_length_is_refused():
    with pytest.raises(DataError, match="2 values for 3 x"):
        line_plots.draw_lines(lines(Series(label="a", y=[1.0, 2.0])))


def test_curves_are_grouped_by_the_name_after_the_slash():
    names = ("train/lr", "train/loss", "validation/loss", "seconds")
    rows = [
        {"name": name, "value": value, "unit": "", "step": step}
        for name in names
        for step, value in ((2, 0.5), (1, None))
    ]
    curves = line_plots.learning_curves(rows)
    assert [curve.title for curve in curves] == ["loss", "lr", "seconds"]
    assert [series.label for series in curves[0].series] == ["train", "validation"]
    assert curves[0].series[0].x == [1, 2]
    assert curves[0].series[0].y == [None, 0.5]
    assert not curves[0].log_y


def test_what_never_changed_needs_no_curve():
    rows = [{"name": "train/lr", "value": 0.1, "unit": "", "step": step} for step in (1, 2)]
    assert line_plots.learning_curves(rows) == []
    assert len(line_plots.learning_curves(rows[:1])) == 1


def box(attributes=({}, {}), names=("x", "z")):
    coords = {
        name: (name, np.linspace(0, 1, n), dict(attrs))
        for name, n, attrs in zip(names, (4, 3), attributes, strict=True)
    }
    return xr.Dataset({"w": (names, np.arange(12.0).reshape(4, 3))}, coords=coords)


@pytest.mark.parametrize(
    ("data", "vertical"),
    [
        (box(), "z"),
        (box(names=("z", "x")), "z"),
        (box(names=("y", "x")), "y"),
        (box(({"axis": "Z"}, {"axis": "X"}), ("a", "b")), "a"),
        (box(({"axis": "X"}, {"positive": "up"}), ("a", "b")), "b"),
        (box(names=("time", "x")), "time"),
    ],
)
def test_the_upper_direction_is_drawn_upright(data, vertical):
    figure = map_plots.draw_maps(maps(Panel(variable="w", label="w")), data)
    axes = figure.axes[0]
    assert axes.get_ylabel().split()[0] == vertical
    bottom, top = axes.get_ylim()
    assert bottom < top


def test_depth_grows_downward_and_lengths_have_one_scale():
    data = box(({"units": "m"}, {"units": "m", "positive": "down"}), ("x", "depth"))
    axes = map_plots.draw_maps(maps(Panel(variable="w", label="w")), data).axes[0]
    bottom, top = axes.get_ylim()
    assert bottom > top
    assert axes.get_aspect() == 1
    values = meshes(axes.figure)[0].get_array()
    assert values[0, 0] == data.w.values[0, -1]  # rows run from the deepest, drawn at the bottom


def test_labels_are_moved_apart_and_stay_inside():
    moved = line_plots._spread([0.5, 0.5, 0.51, 0.99, 1.0], gap=0.1)
    assert all(b - a > 0.1 - 1e-12 for a, b in itertools.pairwise(moved))
    assert min(moved) >= 0
    assert max(moved) <= 1 + 1e-12


def moving():
    t, y, x = np.arange(4.0) / 2, np.arange(5.0), np.arange(6.0)
    values = t[:, None, None] + np.add.outer(y, x)
    dims = ("t", "y", "x")
    return xr.Dataset(
        {"truth": (dims, values), "error": (dims, values - 4), "mean": (dims[1:], values[0])},
        coords={"t": t, "y": y, "x": x},
    )


def test_animated_maps_are_one_image_of_all_frames_under_one_scale(monkeypatch):
    seen = []
    draw = map_plots.draw_maps
    monkeypatch.setattr(
        animation, "draw_maps", lambda s, f, n, **k: seen.append(n) or draw(s, f, n, **k)
    )
    panels = [Panel(variable=v, label=v) for v in ("truth", "mean")]
    spec = Maps(title="u", panels=panels, animate="t")
    data = animation.animated_maps(spec, moving())
    assert data == animation.animated_maps(spec, moving())
    with Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.n_frames) == ("PNG", 4)
        first = np.asarray(image.convert("RGB"), int)
        image.seek(3)
        last = np.asarray(image.convert("RGB"), int)
    assert np.abs(first - last).max() > 50
    right = first.shape[1] // 2
    unchanged = np.abs(first - last)[first.shape[0] // 5 :, right:]
    assert unchanged.max() == 0  # `mean` has no t
    assert (seen[0]["field"].vmin, seen[0]["field"].vmax) == (0.0, 1.5 + 4 + 5)


@pytest.mark.parametrize(
    ("variable", "dim", "said"),
    [
        ("truth", "z", "no dim 'z'"),
        ("mean", "y", "a panel of 1 dims"),
        ("none", "t", "no variable"),
    ],
)
def test_what_cannot_be_animated_is_said(variable, dim, said):
    spec = Maps(title="u", panels=[Panel(variable=variable, label="a")], animate=dim)
    with pytest.raises(DataError, match=said):
        animation.animated_maps(spec, moving())


def test_bars_of_two_scales_do_not_lie_on_each_other():
    panels = [Panel(variable=v, label=v, scale=v, select={"t": 0}) for v in ("truth", "error")]
    panels.insert(0, panels[0])
    figure = map_plots.draw_maps(Maps(title="u", panels=panels, columns=2), moving())
    figure.canvas.draw()
    one, two = (axes.get_window_extent() for axes in figure.axes[len(panels) :])
    assert not one.overlaps(two)


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_panels_have_one_size_and_touch_no_colour_bar(columns):
    panels = [
        Panel(variable=v, label=v, scale=v, select={"t": t} if v != "mean" else {})
        for t in (0, 1)
        for v in ("truth", "mean", "error")
    ]
    figure = map_plots.draw_maps(Maps(title="u", panels=panels, columns=columns), moving())
    figure.canvas.draw()
    boxes = [axes.get_window_extent() for axes in figure.axes]
    for box in boxes[: len(panels)]:
        assert (box.width, box.height) == pytest.approx((boxes[0].width, boxes[0].height))
    for one, two in itertools.combinations(boxes, 2):
        assert not one.overlaps(two)
    assert len(boxes) == len(panels) + 3


def test_a_limit_sets_the_colour_scale():
    panels = [
        Panel(variable="error", label="e", scale="e", select={"t": 0}, diverging=True, limit=1.0),
        Panel(variable="truth", label="t", scale="t", select={"t": 0}, limit=2.0),
    ]
    norms = map_plots.scale_norms(Maps(title="u", panels=panels), moving())
    assert [(n.vmin, n.vmax) for n in norms.values()] == [(-1, 1), (0, 2)]


def test_velocity_is_drawn_upward():
    data = box(names=("x", "v"))
    axes = map_plots.draw_maps(maps(Panel(variable="w", label="w")), data).axes[0]
    assert axes.get_ylabel().split()[0] == "v"


def test_units_of_pure_numbers_are_not_printed(fields):
    spec = Maps(title="u", unit="1", panels=[Panel(variable="truth", label="t")])
    figure = map_plots.draw_maps(spec, fields)
    assert figure.axes[-1].get_title(loc="left") == ""
    drawn = line_plots.draw_lines(
        Lines(title="t", x=[1], x_label="step [1]", y_label="T [degC]", series=[])
    )
    assert (drawn.axes[0].get_xlabel(), drawn.axes[0].get_ylabel()) == ("step", "T [°C]")


def test_lines_of_context_have_no_label():
    shown = [
        Series(label="ours", y=[1.0, 2, 3]),
        Series(label="other", y=[1, 1, 1], role="context"),
    ]
    figure = line_plots.draw_lines(lines(*shown))
    assert [text.get_text() for text in figure.axes[0].texts] == ["ours"]
    legends = draw_plot(Multiples(title="m", panels=[lines(*shown), lines(*shown)])).legends
    assert [text.get_text() for text in legends[0].get_texts()] == ["ours"]


@pytest.mark.parametrize(
    "spec",
    [
        lines(*(Series(label=f"a baseline with a long name {i}", y=[1.0, i, 3]) for i in range(3))),
        lines(Series(label="H", x=[0.0, 4], y=[1.0, 2], style="points"), equal=True),
        Bars(title="b", labels=["ours", "mean"], values=[0.9, 0.5], x_label="accuracy"),
        Points(title="p", x_label="x", y_label="y", series=[Series(label="a", x=[1], y=[1])]),
        Diagram(title="d", boxes=["input", "1: 64", "output"], arrows=[(0, 1), (0, 2)]),
    ],
    ids=lambda spec: type(spec).__name__,
)
def test_text_of_a_single_panel_is_readable_on_a_phone(spec):
    figure = draw_plot(spec, narrow=True)
    figure.canvas.draw()
    assert figure.get_size_inches()[0] == 4.6
    (axes,) = figure.axes
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in axes.texts)
    assert axes.get_window_extent().width > 0.6 * figure.bbox.width
    assert all(legend.get_window_extent().x1 <= figure.bbox.x1 for legend in figure.legends)


def test_parity_panels_are_square():
    points = Series(label="H", x=[0.0, 4], y=[1.0, 2], style="points")
    figure = line_plots.draw_lines(lines(points, equal=True))
    axes = figure.axes[0]
    assert axes.get_xlim() == axes.get_ylim()
    figure.canvas.draw()
    box = axes.get_window_extent()
    assert box.width == pytest.approx(box.height)


def test_the_bar_of_the_surrogate_is_coloured():
    spec = Bars(title="b", labels=["ours", "mean"], values=[0.9, 0.5], x_label="acc", marked=0)
    first, second = draw_plot(spec).axes[0].patches
    assert first.get_facecolor() != second.get_facecolor()


def test_labels_of_parallel_coordinates_do_not_collide():
    heads = ["encoder_decoder", "last_state", "a_single_extremely_long_word"]
    axes = [Scale(label=f"head{i}", ticks=heads) for i in range(8)]
    rows = [[float(i % 3)] * 8 for i in range(6)]
    spec = Parallel(title="p", axes=axes, rows=rows, colour=[1.0] * 6, colour_label="e", marked=0)
    figure = draw_plot(spec)
    figure.canvas.draw()
    texts = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(texts) == 24
    assert not any(one.overlaps(two) for one, two in itertools.combinations(texts, 2))


def test_a_colour_bar_of_a_phone_is_beside_panels_of_its_scale_only(fields):
    panels = [
        Panel(variable=name, label=name, scale="error" if name == "error" else "field")
        for name in ("truth", "forecast", "error") * 2
    ]
    figure = map_plots.draw_maps(maps(*panels), fields, narrow=True)
    axes = [a.get_position() for a in figure.axes]
    drawn, bars = axes[: len(panels)], axes[len(panels) :]
    spans = sorted((round(b.y0, 6), round(b.y1, 6)) for b in bars)
    assert len(spans) == 4  # truth and forecast, error, and again
    assert all(low[1] < high[0] for low, high in itertools.pairwise(spans))
    assert sum(b.y1 - b.y0 for b in bars) >= sum(p.y1 - p.y0 for p in drawn)


@pytest.mark.parametrize("number", [1, 3, 8])
@pytest.mark.parametrize("narrow", [False, True])
def test_a_shared_legend_is_inside_its_figure(number, narrow):
    labels = ["standard deviation", "persistence", "linear extrapolation", "emulator"]
    series = [Series(label=label, y=[1.0, 2.0, 3.0]) for label in labels]
    panel = Lines(title="u", x=[1, 2, 3], x_label="step", y_label="RMSE", series=series)
    figure = line_plots.draw_multiples([panel] * number, "Errors", shared=True, narrow=narrow)
    to_png(figure)
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_series_with_names_are_labelled_by_them():
    names = ["Oslo", "Roma", "Kyiv"]
    data = xr.Dataset(
        {"u": (("lead", "series"), np.arange(12.0).reshape(4, 3))}, {"station": ("series", names)}
    )
    axes = map_plots.draw_maps(maps(Panel(variable="u", label="u")), data).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == names
    assert axes.get_xlabel() == "series"
    assert all(tick == round(tick) for tick in axes.get_yticks())
    many = data.isel(series=[0, 1, 2] * 20)
    axes = map_plots.draw_maps(maps(Panel(variable="u", label="u")), many).axes[0]
    assert 2 <= len(axes.get_xticklabels()) <= 7
