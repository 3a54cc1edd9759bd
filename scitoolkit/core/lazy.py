"""Lazy imports of public names and modules.

They keep `import scitoolkit.forecasting` free of torch and `scitoolkit --help` fast.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str | None]) -> Callable[[str], Any]:
    """Return a module `__getattr__` that imports each public name from its home.

    Args:
        package: the package's `__name__`.
        homes: public name -> module of the package that holds it; None where the name is a module.

    Example:
        >>> get = lazy_names("scitoolkit.core", {"ConfigError": "errors"})
        >>> get("ConfigError").__name__
        'ConfigError'
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        if home is None:
            return importlib.import_module(f"{package}.{name}")
        return getattr(importlib.import_module(f"{package}.{home}"), name)

    return get


def load_name(reference: str) -> Any:
    """Import and return the object `module:name`, in the notation of entry points.

    Configuration classes refer to the classes they build in this way, so that reading a
    configuration does not import them.

    Example:
        >>> load_name("scitoolkit.core.errors:ConfigError").__name__
        'ConfigError'
    """
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def public_dir(module: Mapping[str, Any]) -> Callable[[], list[str]]:
    """Return a module `__dir__` that lists the public names for tab completion, imported or not.

    Args:
        module: the module's `globals()`, with `__all__`.
    """
    return lambda: sorted({*module["__all__"], *(n for n in module if n.startswith("__"))})


class LazyModule:
    """A module that is imported on first access to one of its attributes.

    Example:
        >>> LazyModule("math").sqrt(4.0)
        2.0
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module."""
        return getattr(importlib.import_module(self._name), name)
