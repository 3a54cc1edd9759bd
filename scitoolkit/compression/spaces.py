"""Search space of the compressor, as plain data; keys are those of its configuration."""

from __future__ import annotations

from typing import Any

COMPRESSOR: dict[str, Any] = {
    "base": ["dyadic", "sz3", "sperr", "zfp"],
    "enhancer": ["none", "linear", "network"],
    "strictness": ["strict", "relaxed"],
    "bound.value": {"low": 1e-3, "high": 3e-2, "log": True},
}
"""Codec, enhancer behind it and bound; compare by `accuracy_gain`, limit by `bytes` or `psnr`."""
