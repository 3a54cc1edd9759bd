"""Figures of the report of a node model."""

from scitoolkit.graphs.stages import _figures, _processes


def test_traffic_is_drawn_when_several_processes_ran():
    scores = {"gcn": 0.8, "majority class": 0.1}
    (bars,) = _figures(scores, "test", "accuracy", {"processes": 1, "received_bytes": [0]})
    assert (bars.labels, bars.marked, bars.x_label) == (list(scores), 0, "test accuracy")
    record = {"processes": 2, "received_bytes": [1_500_000, 2_000_000]}
    _, traffic = _figures(scores, "test", "accuracy", record)
    assert (traffic.labels, traffic.values) == (["process 0", "process 1"], [1.5, 2.0])
    assert (_processes(1), _processes(2)) == ("1 process", "2 processes")
