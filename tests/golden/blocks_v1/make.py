"""Write the frozen blocks (`python tests/golden/blocks_v1/make.py`), at a new version."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from scitoolkit.compression.native import blocks
from scitoolkit.testing.codec import smooth_field

HERE = Path(__file__).parent
# Points in a block are few, so that small fields have several.
POINTS = 512
CASES = {
    "line_f4": ((1100,), "f4", 1e-2),
    "plane_f8": ((40, 30), "f8", 1e-3),
    "cube_f4": ((8, 10, 9), "f4", 1e-3),
    "verbatim_f4": ((7,), "f4", 1e-9),
}


def main() -> None:
    """Write one .bin a case, and what they decode to."""
    about, blocks.POINTS = {}, POINTS
    for name, (shape, dtype, bound) in CASES.items():
        x = smooth_field(shape, "float64").astype(dtype)
        data, values, _ = blocks.encode(np.ascontiguousarray(x), bound)
        (HERE / f"{name}.bin").write_bytes(data)
        about[name] = {
            "shape": shape,
            "dtype": dtype,
            "bound": bound,
            "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
        }
    (HERE / "vectors.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
