"""Emulators: networks that map named variables to named variables, in one step or a rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.emulation.config import EmulationConfig as EmulationConfig
    from scitoolkit.emulation.emulator import Emulator as Emulator
    from scitoolkit.emulation.job import EmulationJob as EmulationJob
    from scitoolkit.emulation.rollout import rollout as rollout
    from scitoolkit.emulation.variables import Layout as Layout
    from scitoolkit.emulation.variables import Variable as Variable

_HOMES = {
    "EmulationConfig": "config",
    "EmulationJob": "job",
    "Emulator": "emulator",
    "Layout": "variables",
    "Variable": "variables",
    "rollout": "rollout",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
