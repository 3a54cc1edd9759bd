"""`make gpu`: every rung is run and saved, regardless of failures of others."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(BENCHMARKS / "_gpu.py"))


def test_a_rung_that_fails_or_hangs_does_not_stop_the_next(script, capsys):
    saved = []
    found = script["climb"](
        [
            ("bad", ["-c", "print('here'); raise SystemExit('broken')"]),
            ("endless", ["-c", "import time; time.sleep(60)"]),
            ("figures", ["-c", "print('note'); print('{\"speedup\": 2.5}')"]),
            ("tests", ["-c", "print('3 passed in 0.1s')"]),
        ],
        lambda so_far: saved.append(list(so_far)),
        3,
    )
    assert [each["state"] for each in found.values()] == ["failed", "too long", "passed", "passed"]
    assert "here" in found["bad"]["said"]
    assert "broken" in found["bad"]["said"]
    assert found["figures"]["figures"] == {"speedup": 2.5}
    assert found["tests"]["said"] == "3 passed in 0.1s"
    assert saved == [list(found)[:many] for many in (1, 2, 3, 4)]
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == list(found)


def test_rungs_are_the_marked_tests_and_the_benchmarks_with_a_part_for_gpus(script):
    names = [name for name, _ in script["rungs"]()]
    assert "tests/unit/ops/test_triton_kernels.py" in names
    assert names[-1] == "benchmark tensor_product"
    assert all((BENCHMARKS.parent / name).exists() for name in names if name.startswith("tests/"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_run():
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "_gpu.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no GPU" in done.stderr
