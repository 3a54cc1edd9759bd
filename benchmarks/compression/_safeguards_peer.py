"""Worker in an environment with compression-safeguards: bytes of the corrections of decoded fields.

Reads the path of an .npz (original, decoded_0, decoded_1, ...; variables along the first axis) and
a safeguard as JSON from stdin; prints the bytes of the corrections of each decoded array, with the
package's default lossless coding.
"""

from __future__ import annotations

import json
import sys

import numcodecs.registry
import numpy as np
from numcodecs.abc import Codec
from numcodecs_safeguards import SafeguardedCodec


class Given(Codec):
    """A codec that writes nothing and decodes to a given array."""

    codec_id = "given"
    array = np.empty(0)

    def encode(self, buf):
        return b""

    def decode(self, buf, out=None):
        return Given.array.copy()

    def get_config(self):
        return {"id": self.codec_id}


numcodecs.registry.register_codec(Given)


def main() -> None:
    asked = json.load(sys.stdin)
    arrays = np.load(asked["path"])
    sizes = []
    for number in range(len(arrays.files) - 1):
        Given.array = arrays[f"decoded_{number}"]
        codec = SafeguardedCodec(codec=Given(), safeguards=[asked["safeguard"]])
        sizes.append(len(codec.encode(arrays["original"])))
    print(json.dumps(sizes))


if __name__ == "__main__":
    main()
