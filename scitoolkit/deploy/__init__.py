"""Export of trained surrogates to C, for calls from C, Fortran or Python without torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.deploy.config import ExportConfig as ExportConfig
    from scitoolkit.deploy.kinds import Lowering as Lowering
    from scitoolkit.deploy.library import CompiledSurrogate as CompiledSurrogate
    from scitoolkit.deploy.pool import Pool as Pool

_HOMES = {
    "CompiledSurrogate": "library",
    "ExportConfig": "config",
    "Lowering": "kinds",
    "Pool": "pool",
}
__all__ = ["CompiledSurrogate", "ExportConfig", "Lowering", "Pool"]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
