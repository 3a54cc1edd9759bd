"""The Ray Serve deployment of docs/how-to/many-surrogates.md, with two replicas on this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.export import export

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "many-surrogates.md"
CLIENT = """
import json, sys, urllib.request
for name in ("m0", "m1", "m2", "m0"):
    body = json.dumps([[0.5, -0.25, 1.0, 0.125], [100.0, 0.0, 0.0, 0.0]]).encode()
    asked = urllib.request.Request(
        "http://127.0.0.1:8000/", body, {"serve_multiplexed_model_id": name}
    )
    with urllib.request.urlopen(asked, timeout=120) as answer:
        print("ANSWER", json.dumps([name, json.load(answer)]))
serve.shutdown()
"""


@pytest.mark.slow
@pytest.mark.multiproc
def test_replicas_answer_for_the_surrogates_of_a_folder(tmp_path):
    pytest.importorskip("ray.serve", reason="pip install 'ray[serve]'")
    models = {}
    for k in range(3):
        torch.manual_seed(k)
        models[f"m{k}"] = nn.Linear(4, 3).eval()
        x, y = ArraySpec("x", ("a",), (4,), low=-9.0, high=9.0), ArraySpec("y", ("b",), (3,))
        export([TracedFunction(models[f"m{k}"], [x], [y])], tmp_path / f"m{k}.weights")
    (block,) = re.findall(
        r"^```python notest\n(import asyncio.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S
    )
    # two replicas of half a core, where the page has four of two: any machine has these
    changes = {
        "num_replicas=4": "num_replicas=2",
        '"num_cpus": 2': '"num_cpus": 0.5',
        "/shared/pool": str(tmp_path),
        'Pool("8GiB")': 'Pool("1MiB")',
    }
    for wide, small in changes.items():
        assert wide in block
        block = block.replace(wide, small)
    program = tmp_path / "deployment.py"
    program.write_text(block + CLIENT)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=500, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [
        json.loads(line.removeprefix("ANSWER "))
        for line in done.stdout.splitlines()
        if line.startswith("ANSWER ")
    ]
    assert [name for name, _ in answers] == ["m0", "m1", "m2", "m0"]
    given = torch.tensor([[0.5, -0.25, 1.0, 0.125], [100.0, 0.0, 0.0, 0.0]])
    for name, answer in answers:
        assert answer["status"] == [0, 1]
        with torch.no_grad():
            wanted = models[name](given).numpy()
        assert np.allclose(answer["outputs"][0], wanted, rtol=1e-5, atol=1e-5)
