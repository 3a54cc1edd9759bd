"""Error-bounded codecs: the plug-in kind `codec` and its base class."""

from scitoolkit.compression.codecs.base import CodedField, ErrorBoundedCodec, codecs, fold

__all__ = ["CodedField", "ErrorBoundedCodec", "codecs", "fold"]
