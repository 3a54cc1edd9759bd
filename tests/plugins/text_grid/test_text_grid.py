from importlib import import_module

import numpy as np
import pytest

from scitoolkit.compression import Bound, Options
from scitoolkit.compression.files import FilePlan, compress_file, decompress_file
from scitoolkit.io.fields import open_fields
from scitoolkit.io.formats import formats
from scitoolkit.testing import FormatContract
from scitoolkit.testing.format import sample_fields


class TestTextGrid(FormatContract):
    @pytest.fixture
    def format(self):
        return formats.get("text_grid")

    @pytest.fixture
    def fields(self):
        return sample_fields()[["u"]].drop_vars(["x", "y"])

    def write(self, format, dataset, path):
        import_module("text_grid").write_text_grid(dataset["u"], path)


def test_other_parts_read_it_without_knowing_it(tmp_path):
    assert formats.member("text_grid").origin == "scitoolkit-text-grid"
    fields = sample_fields()[["u"]].isel(t=[0] * 10)
    import_module("text_grid").write_text_grid(fields["u"], tmp_path / "u.txt")
    plan = FilePlan(Bound("abs", 0.1), {"u": None}, Options())
    compress_file(tmp_path / "u.txt", tmp_path / "u.h5", plan)
    decompress_file(tmp_path / "u.h5", tmp_path / "back.h5")
    with open_fields(tmp_path / "back.h5") as found:
        assert np.abs(found["u"].values - fields["u"].values).max() <= 0.1
