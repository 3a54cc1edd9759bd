"""Contract suites to inherit, and parts of tests that several domains use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scitoolkit.core.lazy import lazy_names

if TYPE_CHECKING:
    from scitoolkit.testing.job import JobContract as JobContract

_HOMES = {
    "JobContract": "job",
}
__all__ = ["JobContract"]

__getattr__ = lazy_names(__name__, _HOMES)
