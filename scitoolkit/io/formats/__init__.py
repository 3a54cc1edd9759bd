"""File formats of gridded fields: plug-in kind `format` and its base class."""

from scitoolkit.io.formats.base import (
    Block,
    FieldWriter,
    Format,
    StoredVariable,
    StreamedVariable,
    format_of,
    formats,
    writing_format,
)

__all__ = [
    "Block",
    "FieldWriter",
    "Format",
    "StoredVariable",
    "StreamedVariable",
    "format_of",
    "formats",
    "writing_format",
]
