"""The Python blocks of each tutorial run in order, in a process and a folder of their own."""

from __future__ import annotations

import pytest
from command_line import run_code
from pages import page, python_blocks, shortened

RUN = (
    "tutorials/search-ten-lines",
    "how-to/super-resolution",
    "how-to/hdf5-filter",
    "how-to/lossy-compression-in-my-workflow",
    "how-to/search-from-optuna",
    "how-to/graph-targets",
    "how-to/link-prediction",
    "how-to/training-from-lightning",
    "how-to/emulators-from-physicsnemo",
    "how-to/campaigns-from-the-well",
    "how-to/export-from-ftorch",
    "how-to/forecasts-from-pydmd",
    "how-to/forecasts-from-statsforecast",
    "generators/vlasov",
    "tutorials/campaigns",
    "tutorials/trainer",
    "tutorials/generate-and-train",
)
SHORTER = {
    "how-to/forecasts-from-statsforecast": {
        "420": "240",
        "train: 260, validation: 60, test: 100": "train: 150, validation: 40, test: 50",
    },
    "tutorials/generate-and-train": {
        "epochs: 20": "epochs: 2",
        '"draw.samples=10"': '"draw.samples=6"',
        "train: 6, validation: 2, test: 2": "train: 4, validation: 1, test: 1",
        "sample_00009": "sample_00005",
    },
}


@pytest.mark.parametrize("name", RUN)
def test_the_blocks_of_a_tutorial_run(name, tmp_path):
    blocks = python_blocks(page(name))
    assert blocks
    code = shortened("\n".join(blocks), SHORTER.get(name, {}))
    done = run_code(tmp_path, code, timeout=300)
    assert done.code == 0, done.err
