"""Operations on gridded fields that several domains share: padding of periodic dims, spectra.

Weights and settings are not here: layers and their configuration belong to the domains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.fields.padding import wrapped as wrapped
    from scitoolkit.fields.spectra import line_power as line_power

__all__ = ["line_power", "wrapped"]

__getattr__: Callable[[str], Any] = lazy_names(
    __name__, {"line_power": "spectra", "wrapped": "padding"}
)
__dir__: Callable[[], list[str]] = public_dir(globals())
