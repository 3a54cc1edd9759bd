"""Enhancers of decoded fields: the plug-in kind `enhancer` and its base class."""

from scitoolkit.compression.enhancers.base import Enhancer, enhancers

__all__ = ["Enhancer", "enhancers"]
