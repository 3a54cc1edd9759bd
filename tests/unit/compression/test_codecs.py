"""Every registered codec and enhancer keeps its contract; what the registry changes for users."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from scitoolkit.compression import Options, compress, decompress, inspect_stream
from scitoolkit.compression.codecs import ErrorBoundedCodec, codecs
from scitoolkit.compression.compare import codecs_at_size, plain_codecs
from scitoolkit.compression.config import CompressionConfig
from scitoolkit.compression.container import pack, unpack
from scitoolkit.compression.enhancers import Enhancer, enhancers
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.testing.codec import CodecContract, EnhancerContract, smooth_field


class TestCodecs(CodecContract):
    @pytest.fixture(params=codecs.names())
    def codec(self, request) -> ErrorBoundedCodec:
        return codecs.get(request.param)()


class TestEnhancers(EnhancerContract):
    @pytest.fixture(params=enhancers.names())
    def enhancer(self, request) -> Enhancer:
        return enhancers.get(request.param)()


@pytest.mark.parametrize("codec", codecs.names())
@pytest.mark.parametrize("enhancer", ["none", "linear"])
def test_a_named_codec_and_enhancer_are_those_of_the_stream(codec, enhancer):
    x = smooth_field((20, 24, 28))
    stream = compress(x, rel=1e-2, codec=codec, enhancer=enhancer)
    about = inspect_stream(stream)
    assert about["base"]["name"] == codec
    assert about.get("enhancer", {}).get("name", "none") == enhancer
    assert np.abs(decompress(stream) - x).max() <= about["max_error"] <= about["error_bound"]


def test_former_keys_are_accepted_and_unknown_codecs_are_refused_by_name(caplog):
    old = {"data": {"path": "x.npy"}, "base": "sz3", "strictness": "relaxed", "seconds": 3}
    config = CompressionConfig.model_validate(old)
    assert (config.codec.name, config.guarantee, config.train_seconds) == ("sz3", "relaxed", 3)
    assert sum("is now called" in line for line in caplog.messages) == 3
    with pytest.raises(ConfigError, match=r"codec: 'sz4' is not one of auto, .*did you mean sz3"):
        Options(codec="sz4")
    with pytest.raises(ConfigError, match="enhancer: 'linaer' is not one of"):
        Options(enhancer="linaer")


def test_a_codec_that_is_not_installed_is_named_and_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "pysz", None)
    runnable, not_run = plain_codecs()
    assert "sz3" not in runnable
    assert not_run == {"sz3": "pysz is not installed"}
    x = smooth_field((12, 12, 12))
    assert "sz3" not in codecs_at_size(x, 2000, grid=2)
    assert np.abs(decompress(compress(x, abs=0.1)) - x).max() <= 0.1


def test_a_stream_of_a_codec_that_is_not_known_here_says_which():
    header, sections = unpack(compress(smooth_field((9, 10, 11)), rel=1e-2, codec="sz3"))
    header["base"]["name"] = "elsewhere"
    with pytest.raises(DataError, match="codec 'elsewhere'"):
        decompress(pack(header, {name: bytes(data) for name, data in sections.items()}))
