from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.compression import Options, compress, inspect_stream
from scitoolkit.compression.codecs import codecs
from scitoolkit.compression.compare import codecs_at_size
from scitoolkit.core.errors import ConfigError
from scitoolkit.testing import CodecContract
from scitoolkit.testing.codec import smooth_field


class TestUniformBins(CodecContract):
    @pytest.fixture(params=[1, 9])
    def codec(self, request):
        return codecs.get("uniform_bins")(level=request.param)


def test_it_is_listed_found_by_its_nearest_name_and_compared_with():
    assert codecs.member("uniform_bins").origin == "scitoolkit-uniform-bins"
    with pytest.raises(ConfigError, match="did you mean uniform_bins"):
        Options(codec="uniform_bin")
    with pytest.raises(ConfigError, match=r"codec\.level"):
        Options(codec={"name": "uniform_bins", "level": 10})
    x = smooth_field((12, 12, 12))
    assert np.isfinite(codecs_at_size(x, 4000, grid=2)["uniform_bins"])


def test_auto_writes_no_stream_that_needs_the_package():
    about = inspect_stream(compress(smooth_field((12, 12, 12)), rel=1e-2))
    assert about["base"]["name"] != "uniform_bins"
