"""Figures of the report of a node model."""

import numpy as np
import pytest

from scitoolkit.graphs.stages import _figures
from scitoolkit.graphs.targets import TARGETS
from scitoolkit.graphs.worst import MOST_ROWS, degree_bars, worst_table


def test_traffic_is_drawn_when_several_processes_ran():
    scores = {"gcn": 0.8, "majority class": 0.1}
    (bars,) = _figures(scores, "test", "accuracy", {"processes": 1, "received_bytes": [0]})
    assert (bars.labels, bars.marked, bars.x_label) == (list(scores), 0, "test accuracy")
    record = {"processes": 2, "received_bytes": [1_500_000, 2_000_000]}
    _, traffic = _figures(scores, "test", "accuracy", record)
    assert (traffic.labels, traffic.values) == (["process 0", "process 1"], [1.5, 2.0])


def test_the_worst_class_is_first_with_what_it_is_mistaken_for():
    truth = np.array([2, 2, 2, 0, 0, 1])
    predicted = np.array([0, 0, 2, 0, 1, 1])
    table = worst_table(TARGETS["classes"], truth, predicted, np.arange(6))
    assert [row[0] for row in table.rows] == [2, 0, 1]
    assert table.rows[0] == [2, 3, pytest.approx(1 / 3), 0, pytest.approx(2 / 3)]
    assert table.rows[2] == [1, 1, 1.0, None, None]


def test_the_worst_label_is_first_with_what_was_missed_and_falsely_assigned():
    truth = np.array([[1, 1], [1, 0], [0, 0]])
    predicted = np.array([[1, 0], [1, 1], [0, 0]])
    rows = worst_table(TARGETS["labels"], truth, predicted, np.arange(3)).rows
    assert rows == [[1, 1, 0.0, 1, 1], [0, 2, 1.0, 0, 0]]


def test_nodes_with_the_largest_errors_are_named_by_their_number():
    truth = np.zeros((40, 2), np.float32)
    predicted = truth.copy()
    predicted[7, 1], predicted[31, 0] = -3.0, 2.0
    table = worst_table(TARGETS["values"], truth, predicted, np.arange(100, 140))
    assert table.rows[:2] == [[107, 1, 0.0, -3.0, -3.0], [131, 0, 0.0, 2.0, 2.0]]
    assert len(table.rows) == MOST_ROWS
    assert table.note == f"{MOST_ROWS} of 40 nodes."


@pytest.mark.parametrize("target", ["classes", "labels", "values"])
def test_bars_by_degree_hold_every_node_once(target):
    draw = np.random.default_rng(3)
    degrees = np.array([0, 1, 2, 3, 7, 8, 300, 5000])
    shape = (8,) if target == "classes" else (8, 2)
    truth = draw.integers(0, 2, shape)
    bars = degree_bars(TARGETS[target], truth, truth, degrees, "test")
    assert [label.partition(" (")[0] for label in bars.labels] == [
        "0",
        "1",
        "2 to 3",
        "4 to 7",
        "8 to 15",
        "256 or more",
    ]
    assert sum(int(label.partition("n = ")[2].rstrip(")")) for label in bars.labels) == 8
    assert bars.values == [0.0 if target == "values" else 1.0] * 6
