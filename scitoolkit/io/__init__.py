"""Input and output: fields, atomic configurations, splits, and loaders of training batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.io.atoms import AtomsCollection as AtomsCollection
    from scitoolkit.io.atoms import LabelConfig as LabelConfig
    from scitoolkit.io.atoms import open_atoms as open_atoms
    from scitoolkit.io.atoms import open_structures as open_structures
    from scitoolkit.io.fields import open_fields as open_fields
    from scitoolkit.io.fields import write_fields as write_fields
    from scitoolkit.io.inspect import describe as describe
    from scitoolkit.io.split import SplitConfig as SplitConfig
    from scitoolkit.io.split import blocked_split as blocked_split
    from scitoolkit.io.stream import StreamedVariable as StreamedVariable
    from scitoolkit.io.stream import stream_fields as stream_fields

_NAMES = {
    "atoms": "AtomsCollection LabelConfig open_atoms open_structures",
    "fields": "open_fields write_fields",
    "inspect": "describe",
    "split": "SplitConfig blocked_split",
    "stream": "StreamedVariable stream_fields",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
