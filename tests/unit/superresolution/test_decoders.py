"""Our decoders pass the contract suite."""

from __future__ import annotations

import pytest

from scitoolkit.superresolution.config import MLPConfig, decoders
from scitoolkit.testing import DecoderContract


class TestDecoders(DecoderContract):
    @pytest.fixture(params=decoders.names())
    def decoder(self, request):
        return decoders.get(request.param)(name=request.param, widths=[10, 8])


class TestFourierFeatures(DecoderContract):
    @pytest.fixture
    def decoder(self):
        return MLPConfig(widths=[8, 8], features=5, activation="gelu")
