"""Emulators: named variables of any file to other ones, one step or rolled out, and exported."""

from __future__ import annotations

from scitoolkit.core.lazy import lazy_names

_HOMES = {
    "EmulationConfig": "config",
    "EmulationJob": "job",
    "Emulator": "emulator",
    "Layout": "variables",
    "Variable": "variables",
    "rollout": "rollout",
}
__all__ = sorted(_HOMES)


__getattr__ = lazy_names(__name__, _HOMES)
