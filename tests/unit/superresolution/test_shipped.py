"""The shipped surrogate on the flow that it did not learn from."""

from __future__ import annotations

import json

import pytest

from scitoolkit import api
from scitoolkit.core.content import find_content


def test_the_shipped_surrogate_has_the_accuracy_that_its_card_quotes():
    folder = find_content("surrogates", "rayleigh_benard_mfn")
    data = find_content("datasets", "rayleigh_benard") / "rb2d_ra1e6_pr1_s43_t20-23.75.h5"
    results = api.evaluate(folder, data)
    found = results.metrics
    quoted = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    for field in "pbuw":
        assert found[f"r2_{field}"] > 0.975
        assert found[f"r2_{field}"] == pytest.approx(quoted[f"r2_{field}"], abs=1e-4)
    for name in ("kinetic_energy_error", "dissipation_error", "spectrum_error_highest_third"):
        assert found[name] < found[f"{name}_multilinear"]
    titles = {figure.title: figure for figure in results.figures}
    motion = titles["b in motion"]
    assert motion.animate == "t"
    assert [panel.label for panel in motion.panels] == [
        "coarse nodes",
        "prediction",
        "truth",
        "error",
    ]
    assert len({panel.scale for panel in motion.panels[:3]}) == 1  # one colour scale
    assert {"Spectrum of kinetic energy along x", "b over time"} <= set(titles)
