"""Text as a literal of ISO C."""

from __future__ import annotations

from scitoolkit.core.errors import ConfigError

_PLAIN = frozenset(range(0x20, 0x7F)) - set(b'"\\?')


def text_in_c(text: str) -> str:
    """Return a C literal of a text in UTF-8.

    Bytes other than printable ASCII are octal escapes, which have at most three digits: a
    hexadecimal one would go on into the next character. `?` is one, too, as `??/` is a backslash
    in ISO C before C23.

    Raises:
        ConfigError: the text has a NUL, where a text of C ends.

    Example:
        >>> print(text_in_c('degC "1"'), text_in_c("µ\\n"))
        "degC \\0421\\042" "\\302\\265\\012"
    """
    if "\0" in text:
        raise ConfigError(f"the text {text!r} has a NUL", where="export to C", fix="another name")
    encoded = text.encode("utf-8", "surrogatepass")
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in encoded) + '"'
