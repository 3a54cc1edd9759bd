"""README's headline cannot be picked: rivals, cases and ages come from the stored results."""

from __future__ import annotations

import copy
import math
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from _comparison import Comparison, leaves  # noqa: E402
from _comparisons import COMPARISONS, unread  # noqa: E402
from _headlines import HEADLINES, OLD, gains, losses, measured, pooled, row, winner  # noqa: E402
from _stored import stored  # noqa: E402

POOLED = [(headline, c) for headline in HEADLINES for c in pooled(headline.benchmark)]
SHOWN = [pytest.param(h, c, id=f"{h.benchmark}, {c.quantity}") for h, c in POOLED]


def changed(figures: dict, path: str, value: float) -> dict:
    """Return the figures with the value of one path replaced or added."""
    new = copy.deepcopy(figures)
    place, keys = new, path.split("/")
    for key in keys[:-1]:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    place[keys[-1]] = value
    return new


def rivals(comparison: Comparison, names: Iterable[str]) -> list[re.Match[str]]:
    """Return what the expressions of the rivals match that is not a measurement of ours."""
    others = [name for name in names if not re.fullmatch(comparison.ours, name)]
    return [m for e in comparison.rivals for name in others if (m := re.fullmatch(e, name))]


def far_better(comparison: Comparison, figures: dict) -> float:
    """Return a measurement better than all that were measured."""
    values = [v for case in comparison.read(figures)[0] for v in (case.ours, *case.rivals.values())]
    gain = comparison.kind.gain
    if gain(0.5, 1.0) == 0:  # a share of one, such as R²
        return (1 + max(values)) / 2
    candidates = (max(values) * 2, min(values) / 2)
    return comparison.sign * min(candidates, key=lambda value: gain(values[0], value))


@pytest.mark.parametrize(("headline", "comparison"), SHOWN)
def test_a_stronger_rival_in_the_file_is_named(headline, comparison):
    figures = stored(headline.benchmark)
    value = far_better(comparison, figures)
    names = [path for path, _ in leaves(figures)]
    matches = [m for m in rivals(comparison, names) if "rival" in m.groupdict() and m["rival"]]
    assert matches or comparison.constant  # or a baseline by definition
    for match in matches[:: max(1, len(matches) // 4)]:
        start, end = match.span("rival")
        # a newcomer, measured wherever this rival was, under a name that no list knows
        for name in ("newcomer", match["rival"]):
            path = match.string[:start] + name + match.string[end:]
            if not rivals(comparison, [path]):
                continue  # test_every_figure_is_compared_or_listed_as_alone sees it
            new = changed(figures, path, value)
            worst, _ = gains(headline.benchmark, new)
            assert worst.rival == comparison._name(name), path
            assert worst.rival in row(headline, new)[2]
            assert losses(headline.benchmark, new), "a loss has to be in its table"


@pytest.mark.parametrize(("headline", "comparison"), SHOWN)
def test_the_worst_case_is_shown(headline, comparison):
    figures = stored(headline.benchmark)
    ours = [(path, v) for path, v in leaves(figures) if re.fullmatch(comparison.ours, path)]
    for path, value in ours[:: max(1, len(ours) // 4)]:
        for factor in (0.01, 0.99):
            new = changed(figures, path, value * factor)
            worst, words = gains(headline.benchmark, new)
            everything = [
                case.strongest(c.kind)[1]
                for c in pooled(headline.benchmark)
                for case in c.read(new)[0]
            ]
            assert worst.gain == min(everything)
            cells = row(headline, new)
            assert worst.comparison.kind.range(min(everything), max(everything)) == words
            assert cells[3].startswith(words)
            assert cells[2] == worst.theirs()


@pytest.mark.parametrize("comparison", COMPARISONS, ids=lambda c: f"{c.benchmark}, {c.quantity}")
def test_every_comparison_reads_its_file_and_refuses_nan(comparison):
    figures = stored(comparison.benchmark)
    cases, read = comparison.read(figures)
    assert cases
    assert all(case.rivals for case in cases)
    for path in sorted(read)[:3]:
        with pytest.raises(ValueError, match="is nan"):
            comparison.read(changed(figures, path, math.nan))


@pytest.mark.parametrize("headline", HEADLINES, ids=lambda h: h.benchmark)
def test_every_figure_is_compared_or_listed_as_alone(headline):
    figures = stored(headline.benchmark)
    assert not unread(headline.benchmark, figures), (
        "compare them in benchmarks/_comparisons.py, or list them in UNCOMPARED"
    )
    assert unread(headline.benchmark, {**figures, "other_program_wins_by": 2.0})


def test_a_case_without_a_rival_is_refused():
    figures = stored("potential_mace")
    figures["ours_train_ms_huge"] = 1.0
    with pytest.raises(ValueError, match="nothing was measured beside ours_train_ms_huge"):
        gains("potential_mace", figures)


def test_old_results_are_marked():
    figures = {"date": "2026-11-24", "processor": "X", "load": 2}
    assert measured(figures) == "2026-11-24, X, load 2.0"
    assert measured(figures, tolerance=0) == f"2026-11-24{OLD}, X, load 2.0"
    assert OLD in measured({**figures, "date": "2026-11-20"})
    assert OLD not in measured({**figures, "date": "2026-11-20", "version": "0.2.0"})
    assert OLD in measured({**figures, "version": "0.1.0"}, tolerance=0)
    assert measured({"date": "2026-11-25"}) == "2026-11-25, processor not stored, load not stored"


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ({"model": "autoregression(average)"}, "1 of 1"),
        ({"winners": {"a": "climatology + POD ridge", "b": "POD-LSTM"}}, "1 of 2"),
        ({"winners": {"a": "graph network", "b": "LSTM"}}, ""),
        ({}, ""),
    ],
)
def test_a_closed_form_that_wins_is_told(names, told):
    words = winner(names)
    assert (told in words and "closed form" in words) if told else words == ""


def test_ranges_tell_both_ends():
    from _comparison import PSNR, TIME

    assert TIME.range(11.2, 37.8) == "11 to 38 x faster"
    assert TIME.range(2.01, 2.02) == "2.0 x faster"
    assert TIME.range(0.5, 4.0) == "2.0 x slower to 4.0 x faster"
    assert TIME.range(0.1, 0.5) == "2.0 to 10 x slower"
    assert PSNR.range(-0.2, 3.0) == "-0.2 to +3.0 dB PSNR"
    assert TIME.lost(0.98)
    assert TIME.lost(math.nan)
    assert not TIME.lost(0.995)
