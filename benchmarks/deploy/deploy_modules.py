"""Small torch modules, one for each layer or operation, and ten field architectures, as C.

Each is exported in float32 and in float64 and compared with torch at other inputs than those of
the comparison before writing. `exported_share` is the share of modules that are equal in both;
`wrong` counts numbers, NaN or statuses that differ, `not_equal` names what is refused and why.
Architectures are compiled with the flags of an export, modules without optimisation.
$SCITOOLKIT_CASES sets the number of modules.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

from _places import HELPERS

sys.path.insert(0, str(HELPERS))


def run() -> dict:
    """Return the counts; see the module docstring."""
    import torch
    from _measure import machine
    from exported import outcomes
    from field_architectures import architectures
    from surveyed_modules import as_function, surveyed

    from scitoolkit.deploy import ExportConfig

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = list(surveyed())[: int(os.environ.get("SCITOOLKIT_CASES", 10**6))]
    fields = architectures()
    modules = {name: member for name, member in surveyed().items() if name in names}
    functions = [as_function(*member, name) for name, member in modules.items()]
    whole = [as_function(*member, name) for name, member in fields.items()]
    told = {}
    with tempfile.TemporaryDirectory() as folder:
        for dtype in ("float32", "float64"):
            config = ExportConfig(dtype=dtype)
            made = outcomes(functions, Path(folder), lambda _, config=config: config)
            made |= outcomes(
                whole, Path(folder), lambda _, config=config: config, 1, optimised=True
            )
            told |= {(name, dtype): text for name, text in made.items()}
            # Those that are not equal end together, where they interrupt no others.
            functions.sort(key=lambda f, made=made: made[f.name])

    def equal(name: str) -> bool:
        return all(told[name, dtype] == "equal" for dtype in ("float32", "float64"))

    exported = sum(map(equal, names))
    return {
        "modules": len(names),
        "exported": exported,
        "exported_share": exported / len(names),
        "architectures": len(fields),
        "architectures_exported": sum(map(equal, fields)),
        "wrong": sum(text.startswith("wrong") for text in told.values()),
        "raw_errors": sum(text.startswith("raw") for text in told.values()),
        "not_equal": [f"{n} {d}: {t}" for (n, d), t in told.items() if t != "equal"],
        "machine": machine(),
    }
