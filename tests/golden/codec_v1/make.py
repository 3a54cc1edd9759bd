"""Write the frozen chunks (`python tests/golden/codec_v1/make.py`), for a new version alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from scitoolkit.compression.native import library
from scitoolkit.testing.codec import smooth_field

HERE = Path(__file__).parent
CASES = {
    "line_f4": ((900,), "<f4", 1e-2, None),
    "plane_f8": ((90, 92), "<f8", 1e-3, -999.0),
    "cube_f4": ((10, 11, 12), "<f4", 1e-3, -999.0),
    "cube_big_f8": ((9, 8, 7), ">f8", 1e-6, None),
    "fold_f4": ((2, 3, 8, 9), "<f4", 1e-1, None),
    "verbatim_f4": ((5,), "<f4", 1e-6, None),
}


def main() -> None:
    """Write one .bin a case, and what they decode to."""
    about = {}
    for name, (shape, dtype, bound, fill) in CASES.items():
        x = smooth_field(shape, "float64").astype(dtype)
        if fill is not None:
            x.reshape(-1)[::13], x.reshape(-1)[5] = fill, np.nan
        parameters = library.chunk_parameters(shape, x.dtype, bound, fill)
        data = library.encode_chunk(x, parameters)
        values = library.decode_chunk(data, shape, x.dtype, parameters)
        (HERE / f"{name}.bin").write_bytes(data)
        about[name] = {
            "shape": shape,
            "dtype": dtype,
            "bound": bound,
            "fill": fill,
            "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
        }
    (HERE / "vectors.json").write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
