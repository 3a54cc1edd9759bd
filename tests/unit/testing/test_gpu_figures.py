"""Figures of `benchmarks/gpu/gpu.py` from a stored measurement and from a report of tests."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_workflow_runs[water]"><failure message="x"/></testcase>
<testcase classname="tests.a" name="test_workflow_runs[acac]"/>
<testcase classname="tests.b" name="test_model[gcn]"><error message="x"/></testcase>
<testcase classname="tests.b" name="test_model[gat]"><skipped message="x"/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "gpu"))
    import gpu

    yield gpu
    sys.modules.pop("gpu", None)


def test_failures_and_errors_count_and_skipped_tests_do_not_pass(gpu):
    counts = gpu.counted(REPORT)
    assert (counts["workflows"], counts["workflows_failed"]) == (2, 1)
    assert (counts["contract"], counts["contract_failed"]) == (1, 1)
    assert counts["contract_skipped"] == 1
    assert len(counts["failed_tests"]) == 2


def test_no_failure_is_counted_where_nothing_ran(gpu):
    counts = gpu.counted("<testsuites/>")
    assert counts["workflows"] == 0
    assert "workflows_failed" not in counts
    assert "contract_failed" not in counts


def test_nothing_is_claimed_without_a_measurement(gpu):
    assert gpu.figures({}) == {}


def test_a_goal_needs_all_of_its_parts(gpu):
    def timed(speedup, atomic):
        return {"speedup": speedup, "atomic_speedup": atomic, "share_of_copy": 0.5}

    stored = {
        "device": "card",
        "date": "2026-01-01",
        "rungs": {
            "mace float32": {"state": "passed", "figures": {"speedup": 1.5}},
            "se_e2_a float64": {"state": "passed", "figures": {"speedup": 2.0}},
            "gcn": {"state": "passed", "figures": {"speedup": 3.0}},
            "gat": {"state": "failed"},
            "products float32": {
                "state": "too long",
                "figures": {
                    "problems": {
                        "one": {"forward": timed(1.0, 2.0), "backward": timed(4.0, 2.0)},
                        "two": {"forward": timed(0.5, 0.8)},
                    }
                },
            },
        },
    }
    figures = gpu.figures(stored)
    assert figures["mace_speedup_float32"] == 1.5
    assert "mace_speedup_float64" not in figures
    assert "se_e2_a_speedup" not in figures  # float32 was not measured
    assert "graph_speedup" not in figures
    assert figures["tensor_product_forward_min"] == 0.8
    assert figures["tensor_product_forward_deterministic_min"] == 0.5
    assert figures["tensor_product_mean"] == pytest.approx((2.0 * 4.0 * 0.8) ** (1 / 3))
    assert figures["measured_on"] == "card, 2026-01-01"
