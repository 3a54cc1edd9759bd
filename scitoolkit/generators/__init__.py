"""Generators: solvers that produce training data with known exact results and invariants."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.generators.base import Check as Check
    from scitoolkit.generators.base import Generator as Generator
    from scitoolkit.generators.base import Sample as Sample
    from scitoolkit.generators.base import generators as generators

_HOMES = {
    "Check": "base",
    "Generator": "base",
    "Sample": "base",
    "generators": "base",
}
__all__ = ["Check", "Generator", "Sample", "generators"]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
