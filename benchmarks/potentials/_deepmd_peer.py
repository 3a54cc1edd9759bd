"""Worker in deepmd-kit's environment: evaluates models on request and reports the CPU seconds.

Reads one JSON object per line from stdin, {"model": FILE, "frame": NPZ, "save": NPZ or null}, and
answers with {"cpu": SECONDS} or {"error": TEXT}; the first call of a model is a warm-up.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np


def main() -> None:
    from deepmd.infer import DeepPot

    models: dict = {}
    for line in sys.stdin:
        request = json.loads(line)
        frame = np.load(request["frame"])
        arguments = (frame["coord"].reshape(1, -1), frame["box"].reshape(1, 9), frame["type"])
        name = request["model"]
        if name not in models:
            models[name] = DeepPot(name)
            models[name].eval(*arguments)
        start = time.process_time()
        energy, force, virial = models[name].eval(*arguments)
        seconds = time.process_time() - start
        if request.get("save"):
            np.savez(request["save"], energy=energy, force=force, virial=virial)
        print("ANSWER " + json.dumps({"cpu": seconds}), flush=True)


if __name__ == "__main__":
    main()
