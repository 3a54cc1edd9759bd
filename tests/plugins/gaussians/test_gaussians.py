from __future__ import annotations

from scitoolkit.testing import PotentialContract

OURS = {"name": "gaussians", "cutoff": 3.5, "number": 6}
PAIR = {
    "name": "se_e2_a",
    "cutoff": 4.0,
    "cutoff_smooth": 1.0,
    "sel": [12, 24],
    "embedding": [5, 10, 20],
    "axis_neurons": 4,
}


class TestGaussians(PotentialContract):
    """The descriptor alone and in a hybrid."""

    @classmethod
    def cases(cls):
        deep = {"name": "deep_potential", "fitting": [8, 8]}
        return {
            "alone": {**deep, "descriptors": [OURS]},
            "hybrid": {**deep, "descriptors": [PAIR, OURS]},
        }
