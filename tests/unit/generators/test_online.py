from __future__ import annotations

import json
import os
import signal
import time

import numpy as np
import pytest
from plugin_packages import module_installed

from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.errors import CheckpointError, DataError, NumericalError
from scitoolkit.generators import generators

MOODY = '''
import errno, os, time
import numpy as np
import xarray as xr
from pathlib import Path
from typing import ClassVar, Literal
from scitoolkit.generators.base import Generator, Sample

class Moody(Generator):
    """Makes NaN, dies or waits at chosen values."""

    name: Literal["moody"] = "moody"
    parameters: ClassVar[dict[str, str]] = {"value": "1"}
    value: float = 0.0
    folder: str = "."
    delay: float = 0.0

    def generate(self, seed):
        time.sleep(self.delay * (1 + seed % 5))
        if self.value == 3.0:
            os._exit(9)
        if self.value == 5.0 and not Path(self.folder, "died").exists():
            Path(self.folder, "died").touch()
            os.kill(os.getpid(), 9)
        if self.value == 4.0:
            raise OSError(errno.ENOSPC, "No space left on device")
        u = np.full((3, 4), self.value) + np.random.default_rng(seed).random((3, 4))
        if self.value == 2.0:
            u[1] = np.nan
        return Sample(xr.Dataset({"u": (("time", "x"), u, {"units": "1"})}), {})
'''


@pytest.fixture
def moody(tmp_path):
    """A generator of an installed package, which worker processes find too."""
    with module_installed(tmp_path / "site", "moody", MOODY, "scitoolkit.generator", "Moody"):
        yield lambda **kw: generators.get("moody")(folder=str(tmp_path), **kw)


@pytest.fixture
def opened():
    streams = []

    def make(generator, values, **settings):
        draw = DrawConfig(method="random", samples=12, parameters={"value": values})
        asked = {"offset": 0, "journal": None, "workers": 0, "ahead": 2, "timeout": 60.0}
        streams.append(
            generator.stream(
                draw,
                1,
                sample_dim="time",
                fields={"u": ("x",)},
                parameters={"value": "linear"},
                shapes={"u": (3, 4), "value": (3,)},
                **{**asked, **settings},
            )
        )
        return streams[-1]

    yield make
    for stream in streams:
        stream.close()


def taken(stream, numbers):
    out = []
    for n in numbers:
        arrays = {"u": np.zeros((3, 4), np.float32), "value": np.zeros(3, np.float32)}
        stream.take(n, arrays)
        out.append(arrays)
    return out


def made(stream, count=6):
    for n in range(count):
        stream.order(n)
    return taken(stream, range(count))


def same(a, b):
    return all(np.array_equal(x[k], y[k]) for x, y in zip(a, b, strict=True) for k in x)


def test_a_sample_depends_on_seed_and_number_alone(moody, opened):
    found = made(opened(moody(), [1.0, 7.0]))
    assert {float(s["value"][0]) for s in found} == {1.0, 7.0}
    assert len({s["u"].tobytes() for s in found}) == 6
    later = opened(moody(), [1.0, 7.0])
    later.order(4)
    assert same(taken(later, [4]), found[4:5])
    shifted = opened(moody(), [1.0, 7.0], offset=3)
    shifted.order(1)
    assert same(taken(shifted, [1]), found[4:5])


def test_nan_is_named_with_its_frame_and_replaced_by_another_draw(moody, opened, tmp_path, caplog):
    stream = opened(moody(), [1.0, 2.0], journal=tmp_path / "j")
    found = made(stream)
    assert all(np.isfinite(s["u"]).all() for s in found)
    assert stream.stats()["simulations_replaced"] > 0
    assert "u, frame 1" in caplog.text
    assert "replaced by another draw" in caplog.text
    assert same(made(opened(moody(), [1.0, 2.0])), found)
    again = opened(moody(), [1.0, 2.0], journal=tmp_path / "j")
    assert same(made(again), found)
    assert again.stats()["simulations_replaced"] == 0  # the journal knows which draws failed


def test_a_generator_that_always_fails_is_given_up(moody, opened):
    with pytest.raises(NumericalError, match=r"sample 0 failed 6 times, .*NaN or Inf"):
        made(opened(moody(), [2.0]))


def test_a_cut_last_line_of_the_journal_is_dropped(moody, opened, tmp_path):
    found = made(opened(moody(), [1.0, 2.0], journal=tmp_path / "j"))
    text = (tmp_path / "j").read_text()
    (tmp_path / "j").write_text(text[:-20])
    assert same(made(opened(moody(), [1.0, 2.0], journal=tmp_path / "j")), found)
    assert (tmp_path / "j").read_text() == text


def test_other_bits_than_in_the_resumed_run_are_refused(moody, opened, tmp_path):
    made(opened(moody(), [1.0], journal=tmp_path / "j"))
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
    lines[2]["made"]["checksum"] += 1
    (tmp_path / "j").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(CheckpointError, match=r"sample 2 .*differs in bits"):
        made(opened(moody(), [1.0], journal=tmp_path / "j"))


def test_chosen_parameters_are_kept_for_a_resumed_run(moody, opened, tmp_path):
    first = opened(moody(), [1.0], journal=tmp_path / "j")
    first.order(0, {"value": 6.5})
    found = taken(first, [0])
    assert float(found[0]["value"][0]) == 6.5
    again = opened(moody(), [1.0], journal=tmp_path / "j")
    again.order(0)
    assert same(taken(again, [0]), found)


@pytest.mark.multiproc
def test_workers_of_any_timing_make_the_same_in_the_memory_stated(moody, opened):
    one = made(opened(moody(), [1.0, 2.0, 7.0]))
    stream = opened(moody(delay=0.02), [1.0, 2.0, 7.0], workers=3, ahead=2)
    assert same(made(stream), one)
    assert stream.nbytes == 2 * 15 * 4


@pytest.mark.multiproc
def test_a_full_stream_blocks_the_workers_and_goes_on(moody, opened):
    stream = opened(moody(), [1.0], workers=2, ahead=2)
    for n in range(6):
        stream.order(n)
    until = time.monotonic() + 60
    while stream.stats()["simulations_made"] < 2 and time.monotonic() < until:
        stream.poll()
        time.sleep(0.01)
    for _ in range(20):
        stream.poll()
        time.sleep(0.01)
    assert stream.stats()["simulations_made"] == 2
    assert len(taken(stream, range(6))) == 6


@pytest.mark.multiproc
def test_dead_workers_are_named_and_replaced(moody, opened, caplog):
    found = made(opened(moody(), [1.0, 5.0, 3.0], workers=1))
    assert {float(s["value"][0]) for s in found} <= {1.0, 5.0}
    assert (
        "worker 0 is replaced (the worker was killed by SIGKILL (out of memory?)) while it made"
        in caplog.text
    )
    assert "it ended 2 workers (the worker ended with exit code 9)" in caplog.text
    killed = opened(moody(delay=0.05), [1.0], workers=1)
    killed.order(0)
    killed.poll()
    os.kill(killed._workers._pool[0].process.pid, signal.SIGKILL)
    assert same(taken(killed, [0]), made(opened(moody(), [1.0]), 1))


@pytest.mark.multiproc
def test_a_worker_without_an_answer_is_replaced(moody, opened, caplog):
    stream = opened(moody(delay=300.0), [1.0], workers=1, timeout=0.5)
    stream.order(0)
    with pytest.raises((NumericalError, DataError), match=r"it ended 7 workers"):
        taken(stream, [0])
    assert "it made a sample for longer than 0.5 s" in caplog.text


def test_the_first_samples_are_files_and_a_full_disk_keeps_them(moody, tmp_path):
    def files(values, count):
        draw = DrawConfig(method="random", samples=8, parameters={"value": values})
        return moody().first_samples(draw, 1, count, tmp_path / "made", 1)

    found = files([1.0, 2.0], 5)
    assert [p.name for p in found] == [f"sample_{n:05d}.nc" for n in range(5)]
    times = [p.stat().st_mtime_ns for p in found]
    with pytest.raises(DataError, match=r"sample 5: .*No space left"):
        files([4.0], 8)
    assert [p.stat().st_mtime_ns for p in files([1.0, 2.0], 5)] == times
