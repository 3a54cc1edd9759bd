"""Search space of the compressor; keys are those of its configuration."""

from __future__ import annotations

from typing import Any

from scitoolkit.compression.codecs import codecs
from scitoolkit.compression.enhancers import enhancers

COMPRESSOR: dict[str, Any] = {
    "codec": [name for name in codecs if codecs.get(name).automatic],
    "enhancer": ["none", *enhancers],
    "guarantee": ["strict", "relaxed"],
    "bound.value": {"low": 1e-3, "high": 3e-2, "log": True},
}
"""Codec, enhancer, guarantee and bound; maximise `accuracy_gain`, constrain `bytes` or `psnr`."""
