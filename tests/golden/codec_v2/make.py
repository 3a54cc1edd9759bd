"""Write the frozen chunks (`python tests/golden/codec_v2/make.py`), for a new version alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

from scitoolkit.compression.native import library
from scitoolkit.testing.codec import smooth_field

HERE = Path(__file__).parent
CASES = {
    "constant_f4": ((9, 8), "<f4", 0.0, None),
    "constant_big_f8": ((90,), ">f8", 1e-6, -999.0),
    "steps_f4": ((6, 7, 8), "<f4", 0.0, None),
    "steps_big_f8": ((2, 3, 5, 6), ">f8", 1e-12, -999.0),
    "line_f8": ((300,), "<f8", 0.0, -999.0),
}


def main() -> None:
    """Write one .bin a case, and what they decode to."""
    about = {}
    for name, (shape, dtype, bound, fill) in CASES.items():
        x = np.round(9 * smooth_field(shape, "float64")).astype(dtype)
        if name.startswith("constant"):
            x[...] = 0.0718
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
