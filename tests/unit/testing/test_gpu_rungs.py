"""`make gpu`: every rung ends at its limit and is stored, and a second call continues."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu"
HEAD = {"device": "none", "date": "2026-01-01"}


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(BENCHMARKS / "_gpu.py"))


@pytest.fixture
def climb(script, tmp_path):
    def run(listed, seconds=60.0, **options):
        rungs = [script["Rung"](*each) for each in listed]
        ladder = script["Ladder"](tmp_path / "out.json", HEAD, seconds, {}, {}, **options)
        ladder.climb(rungs)
        return json.loads((tmp_path / "out.json").read_text())["rungs"]

    return run


def _code(text):
    return ["-c", text]


def test_a_rung_that_fails_or_hangs_keeps_its_figures_and_does_not_stop_the_next(climb, tmp_path):
    child = tmp_path / "child"
    start = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); "
    start += f"open({str(child)!r}, 'w').write(str(p.pid)); "
    results = climb(
        [
            ("bad", "g", _code("print('here'); raise SystemExit('broken')"), 20),
            ("dead", "g", _code("import os; os.kill(os.getpid(), 11)"), 20),
            (
                "endless",
                "g",
                _code(
                    start + "import signal, time; signal.signal(15, signal.SIG_IGN); "
                    'print(\'FIGURES {"a": {"x": 1}}\', flush=True); time.sleep(60)'
                ),
                3,
            ),
            (
                "figures",
                "g",
                _code('print(\'FIGURES {"a": {"x": 1}}\\nnote\\nFIGURES {"a": {"y": 2}}\')'),
                20,
            ),
        ]
    )
    states = [each["state"] for each in results.values()]
    assert states == ["failed", "failed", "too long", "passed"]
    assert "here" in results["bad"]["said"]
    assert "broken" in results["bad"]["said"]
    assert results["dead"]["exit"] == -11
    assert results["endless"]["figures"] == {"a": {"x": 1}}
    assert results["figures"]["figures"] == {"a": {"x": 1, "y": 2}}
    time.sleep(0.2)
    status = Path("/proc") / child.read_text() / "status"  # what a rung started ends with it
    assert not status.exists() or "zombie" in status.read_text()


def test_a_second_call_runs_what_has_not_passed(climb, tmp_path):
    count = tmp_path / "count"
    code = f"open({str(count)!r}, 'a').write('x')"
    first = climb([("good", "g", _code(code), 20), ("bad", "g", _code(code + "; 1 / 0"), 20)])
    assert [each["state"] for each in first.values()] == ["passed", "failed"]
    climb([("good", "g", _code(code), 20), ("bad", "g", _code(code), 20)])
    assert count.read_text() == "xxx"
    climb([("good", "g", _code(code), 20)], again=True)
    assert count.read_text() == "xxxx"


def test_no_rung_starts_when_the_time_is_spent(climb):
    results = climb(
        [
            ("long", "g", _code("import time; time.sleep(60)"), 30),
            ("late", "g", _code("print(1)"), 30),
        ],
        seconds=9.0,
    )
    assert [each["state"] for each in results.values()] == ["too long", "no time"]


def test_names_of_failed_tests_are_kept_also_from_a_run_that_was_stopped(script):
    whole = (
        "tests/a/test_b.py::test_c[1] FAILED [ 50%]\n"
        "FAILED tests/a/test_b.py::test_c[1] - assert 1 == 2\n"
        "==== 1 failed, 3 passed, 2 skipped in 0.1s ====\n"
    )
    result = script["parsed"](whole, keep_text=False)
    assert result["failed_tests"] == ["tests/a/test_b.py::test_c[1] - assert 1 == 2"]
    assert result["counts"] == {"failed": 1, "passed": 3, "skipped": 2}
    cut = "[gw1] [ 10%] FAILED tests/a/test_b.py::test_c[1] \n[gw0] [ 11%] PASSED tests/a.py::d \n"
    assert script["parsed"](cut, keep_text=True)["failed_tests"] == ["tests/a/test_b.py::test_c[1]"]


def test_every_group_has_rungs_with_files_that_exist(script):
    rungs = list(script["rungs"]("folder"))
    assert {each.group for each in rungs} == set(script["GROUPS"])
    assert len({each.name for each in rungs}) == len(rungs)
    for each in rungs:
        if each.command[0] != "-m":
            assert Path(each.command[0]).exists()
    tests = [path for each in rungs if each.group == "tests" for path in each.command]
    files = [path for path in tests if path.endswith(".py")]
    assert "tests/unit/ops/test_triton_kernels.py" in files
    assert sorted(files) == sorted(set(script["device_files"]("gpu")))
    assert not any("," in each.name for each in rungs)  # names are listed with commas


def test_an_early_rung_prepares_at_once_and_measures_when_the_others_have_ended(climb, tmp_path):
    log = tmp_path / "log"
    note = f"open({str(log)!r}, 'a').write"
    path = [str(BENCHMARKS), *sys.path]
    prepare = f"import sys; sys.path[:] = {path!r}; {note}('built '); "
    prepare += f"import _gpu_timing; _gpu_timing.await_turn(); {note}('measured ')"
    beside = f"import time; time.sleep(4); {note}('test ')"
    results = climb(
        [
            ("early", "g", _code(prepare), 40, False, False, True, True),
            ("beside", "g", _code(beside), 20, False, True),
            ("last", "g", _code(f"{note}('last')"), 20),
        ]
    )
    assert {each["state"] for each in results.values()} == {"passed"}
    assert log.read_text() == "built test measured last"


def test_jobs_are_compared_by_loss_and_speed(script):
    name = script["_jobs"]()[0]
    told = {"first_loss": 2.0, "last_loss": 1.0, "step_seconds": 0.1}
    results = {
        f"job {name} cuda": {"state": "passed", "figures": told},
        f"job {name} cpu": {
            "state": "passed",
            "figures": {**told, "first_loss": 2.5, "step_seconds": 1.0},
        },
    }
    row = script["compared"](results)[name]
    assert row["first_loss_difference"] == pytest.approx(0.2)
    assert row["speedup"] == pytest.approx(10)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_run():
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "_gpu.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no GPU" in done.stderr


def test_a_signal_ends_the_rungs_and_what_has_ended_is_stored(tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, BENCHMARKS / "_gpu.py", "--only", "floors,gcn", "--out", out]
    environment = {**os.environ, "SCITOOLKIT_BENCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert "floors" in process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM
    stored = json.loads(out.read_text())["rungs"]
    assert stored["floors"]["figures"]["copy_tb_s"] > 0
