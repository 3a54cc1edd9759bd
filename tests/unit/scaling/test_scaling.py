"""Measurements of `scitoolkit bench training` agree with their definitions."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from scitoolkit import api
from scitoolkit.cli.main import run_cli
from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.results import Results
from scitoolkit.scaling.config import ScalingConfig
from scitoolkit.scaling.costs import Interconnect, StepModel, fitted, ring_counts, whole_size
from scitoolkit.scaling.measure import one_case, trained
from scitoolkit.scaling.memory_classes import by_class, live_storages
from scitoolkit.scaling.metg import crossing
from scitoolkit.scaling.patterns import PATTERNS, dependencies
from scitoolkit.scaling.prediction import predicted
from scitoolkit.scaling.run import bench_training
from scitoolkit.scaling.step_clock import StepClock
from scitoolkit.scaling.workload import PatternTask, network
from scitoolkit.training.ranks.simulated import run_ranks
from scitoolkit.training.traffic import Traffic, TrafficCounter

SMALL = {"width": 32, "depth": 2, "samples": 8, "steps": 3, "warm_up": 1}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
def test_every_rank_receives_what_its_dependencies_sent(pattern, ranks):
    steps = 4

    def work(rank):
        torch.manual_seed(rank.rank)
        rows = [torch.full((3, 4), 10.0 * rank.rank + s) for s in range(steps)]
        task = PatternTask(nn.Identity(), pattern, rank)
        seen = []
        for row in rows:
            task._row = row[0]
            received = task._exchanged(row)
            seen.append([] if received is None else received[:, 0].tolist())
        return seen

    for me, seen in enumerate(run_ranks(ranks, work, Traffic)):
        wanted = [[10.0 * r + s for r in dependencies(pattern, s, me, ranks)] for s in range(steps)]
        assert seen == wanted


def test_patterns_are_task_benchs():
    assert dependencies("all_to_all", 3, 1, 4) == [0, 2, 3]
    assert dependencies("stencil_1d_periodic", 0, 0, 4) == [1, 3]
    assert dependencies("dom", 0, 0, 4) == []
    assert [dependencies("fft", s, 5, 8) for s in range(4)] == [[4, 6], [3, 7], [1], [4, 6]]
    assert dependencies("nearest", 0, 4, 16) == [2, 3, 5, 6]
    assert dependencies("spread", 1, 0, 10) == [3, 5, 7, 9]


def test_metg_is_where_the_efficiency_crosses_one_half():
    # A step of overhead o and useful time w has efficiency w / (w + o): one half at 2 o.
    overhead = 3e-3
    work = [overhead * 2.0**k for k in range(-9, 6)]
    times = [w + overhead for w in work]
    found = crossing(times, [w / t for w, t in zip(work, times, strict=True)])
    assert found == pytest.approx(2 * overhead, rel=1e-6)
    assert crossing([1e-3], [0.9]) == 1e-3


def test_network_and_counts_are_found_again():
    network = Interconnect(30e-6, 0.4e-9)
    points = []
    for size in (1e3, 1e5, 1e7):
        for name in ("all_reduce", "all_gather", "reduce_scatter_single"):
            messages, moved = ring_counts(name, 1, size, 4)
            assert whole_size(name, moved, 4) == pytest.approx(size)
            points.append((messages, moved, network.seconds(messages, moved)))
    found = fitted(points)
    assert found.latency == pytest.approx(network.latency, rel=1e-6)
    assert found.seconds_per_byte == pytest.approx(network.seconds_per_byte, rel=1e-6)


def test_a_step_is_predicted_from_its_parts():
    network = Interconnect(1e-5, 1e-9)
    parts = {"compute": 3e-3, "optimizer": 8e-4, "collectives": {"all_reduce": (2.0, 1e6)}}
    model = StepModel(**parts, sharded=False, overlaps=False)
    ring = 2 * 2 * 3 * 1e-5 + 2 * 1e6 * 3 / 4 * 1e-9
    assert model.seconds(4, {"": network}) == pytest.approx(3e-3 + 8e-4 + ring)
    assert model.seconds(1, {"": network}) == pytest.approx(3e-3 + 8e-4)
    hidden = StepModel(**parts, sharded=True, overlaps=True)
    assert hidden.seconds(4, {"": network}) == pytest.approx(3e-3 + 2e-4)
    assert hidden.seconds(4096, {"": network}) > 0.1  # the latency of a ring is not hidden
    fixed = StepModel(**parts, sharded=True, overlaps=True, fixed=4e-4, copies=1e-5, loop=2e-5)
    assert fixed.seconds(4, {"": network}) == pytest.approx(3e-3 + 5e-4 + 3e-5)
    other = {"": network, "all_reduce": Interconnect(2e-5, 2e-9)}
    assert model.seconds(4, other) == pytest.approx(3e-3 + 8e-4 + 2 * ring)


def rates(slower=1.0, **others):
    return {
        "step_seconds": 1e-3 * slower,
        "sample_seconds": 1e-5 * slower,
        "copy_seconds": 1e-4,
        "optimizer_seconds": 1e-3 * slower,
        "optimizer_fixed_seconds": 2e-4,
        "sharded_fixed_seconds": 5e-4,
        "networks": None,
        **others,
    }


def measured_on(ranks, slower=1.0, step_seconds=4e-3):
    network = {"latency": 1e-4 * slower, "seconds_per_byte": 1e-9 * slower}
    after = {"seconds": 1e-4, "collectives": {"": network}}
    found = rates(slower, networks={"little": after, "more": {**after, "seconds": 1e-2}})
    traffic = {"all_reduce": {"calls": 1.0, "bytes": 2e6 * (ranks - 1) / ranks}}
    case = {"step_seconds": step_seconds, "traffic": traffic, "rates": found}
    return {"ranks": ranks, "cases": {"ddp": case}, "rates": found}


LONE = {"ranks": 1, "rates": rates(), "cases": {"single": {"split": {"data": 1e-5, "other": 3e-5}}}}


def test_the_prediction_reads_no_step_of_a_training():
    config = ScalingConfig(processes=2, strategies=("ddp",))
    found = predicted(config, {1: LONE, 2: measured_on(2)}, cores=2)
    parts = 1e-3 + 64e-5 + 1e-3 + 1e-4 + 4e-5
    assert found["seconds"]["ddp"]["2"] == pytest.approx(parts + 2e-4 + 1e6 * 1e-9)
    slow = predicted(config, {1: LONE, 2: measured_on(2, step_seconds=1.0)}, cores=2)
    assert slow["seconds"] == found["seconds"]
    assert found["error"]["ddp"]["2"] == found["seconds"]["ddp"]["2"] / 4e-3 - 1
    assert found["efficiency"]["ddp"]["4096"] < found["efficiency"]["ddp"]["2"] < 1
    assert found["doubts"] == {}
    faster = config.model_copy(update={"latency_us": 1.0, "gb_per_s": 10.0})
    other = predicted(faster, {1: LONE, 2: measured_on(2)}, cores=2)
    assert other["seconds"]["ddp"]["2"] == found["seconds"]["ddp"]["2"]
    assert other["seconds"]["ddp"]["4096"] < found["seconds"]["ddp"]["4096"] / 50
    with pytest.raises(ConfigError, match="several processes"):
        predicted(config, {1: LONE}, cores=2)


def test_latency_grows_with_the_arithmetic_between_collectives():
    config = ScalingConfig(processes=2, strategies=("ddp",))
    pair = measured_on(2)
    first = predicted(config, {1: LONE, 2: pair}, cores=2)["seconds"]["ddp"]["2"]
    compute = 1e-3 + 64e-5
    later = {
        "seconds": 2 * compute - 1e-4,
        "collectives": {
            "": {
                "latency": 3e-4,
                "seconds_per_byte": 1e-9,
            }
        },
    }
    pair["rates"]["networks"]["more"] = later  # the one collective is half-way
    then = predicted(config, {1: LONE, 2: pair}, cores=2)["seconds"]["ddp"]["2"]
    assert then - first == pytest.approx(2 * 1e-4)


def test_processes_that_share_cores_say_nothing_of_larger_machines():
    config = ScalingConfig(processes=4, strategies=("ddp",))
    files = {1: LONE, 2: measured_on(2), 4: measured_on(4, slower=10.0)}
    found = predicted(config, files, cores=2)
    alone = predicted(config, {1: LONE, 2: measured_on(2)}, cores=2)
    assert found["from_processes"] == 2
    assert found["seconds"]["ddp"]["4096"] == pytest.approx(alone["seconds"]["ddp"]["4096"])
    assert found["seconds"]["ddp"]["4"] > 5 * alone["seconds"]["ddp"]["4"]
    assert found["doubts"] == {"4": "4 processes share 2 cores"}
    busy = predicted(config, files, cores=2, load=3.0)
    assert set(busy["doubts"]) == {"2", "4", "beyond"}


def test_memory_by_class_is_the_formula():
    model = network(32, 2)
    numbers = sum(p.numel() for p in model.parameters())
    before = live_storages()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
    kept = torch.ones(1000)
    found = by_class(model, optimizer, before)
    counters = 4 * len(list(model.parameters()))
    assert found == {
        "parameters": 4 * numbers,
        "gradients": 4 * numbers,
        "buffers": 0,
        "optimizer": 8 * numbers + counters,
        "other": kept.nbytes,
    }


def test_tensors_that_a_tracer_left_have_no_memory():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        left = torch.zeros(2, 5)
    real = torch.zeros(3)
    found = live_storages()
    assert real.data_ptr() in found
    assert all(storage.nbytes() < 2**40 for storage in found.values())
    del left


@pytest.mark.parametrize("case", ["single", "sharded-1", "sharded-3"])
def test_a_case_is_measured_whole(case):
    config = ScalingConfig(**SMALL)
    found = one_case(config, case)
    numbers = sum(p.numel() for p in network(32, 2).parameters())
    assert found["memory"]["parameters"] == pytest.approx(4 * numbers, rel=0.05)
    if case == "sharded-1":  # its buckets live between steps
        assert found["memory"]["other"] > 4 * numbers
    split = found["split"]
    assert min(split[name] for name in ("compute", "optimizer", "data")) > 0
    assert split["waiting"] == pytest.approx(0, abs=1e-12)
    assert bool(found["traffic"]) == (case == "sharded-1")  # FSDP2 alone exchanges nothing
    assert found["step_seconds"] < 10 * sum(split.values())


def test_waiting_is_what_exceeds_the_fastest_ranks_time(lone_group):
    counter = TrafficCounter()
    clock = StepClock(counter)
    with clock.running():
        clock.begin("data")
        dist.all_reduce(torch.zeros(10))
        clock.end("data")
    assert 0 <= clock.seconds["data"] < counter.total().seconds + 0.1
    assert len(counter.blocked) == 1
    clock.reset()
    assert counter.total().calls == 0
    assert not counter.blocked


def test_the_steps_do_not_depend_on_the_clock():
    config = ScalingConfig(**SMALL)
    assert len(trained(config, "single", "fft", 4, 3).seconds) == 3


def test_bad_settings_are_refused_by_name(capsys, monkeypatch, tmp_path):
    for setting, message in (
        ("patterns=[fftt]", "unknown pattern 'fftt'"),
        ("strategies=[sharded-4]", "4 is not 1, 2 or 3"),
        ("strategies=[sharded-3+sdp4bit]", "use stage 1 or 2"),
        ("widht=3", "did you mean width"),
    ):
        with pytest.raises(ConfigProblems, match=message):
            api.bench_training([setting])
    assert run_cli(["bench", "training", "--nproc", "1"]) == 2
    with pytest.raises(ConfigError, match="does not communicate"):
        bench_training(ScalingConfig(processes=1), tmp_path)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="starts its processes itself"):
        bench_training(ScalingConfig(), tmp_path)


@pytest.mark.slow
@pytest.mark.multiproc
def test_the_command_prints_figures_and_draws_a_page(capsys, tmp_path):
    settings = [f"{key}={value}" for key, value in SMALL.items()]
    cases = ["ddp", "sharded-2", "sharded-1+sdp4bit"]
    code = run_cli(
        [
            "bench",
            "training",
            *settings,
            f"strategies=[{','.join(cases)}]",
            "patterns=[trivial,spread]",
            "step_seconds=0.01",
            "--nproc",
            "3",
            "--root",
            str(tmp_path),
            "--json",
        ]
    )
    figures = json.loads(capsys.readouterr().out)
    assert code == 0
    assert set(figures["metg50_us"]) == {"single", *cases}
    assert set(figures["prediction_error"]["ddp"]) == {"2", "3"}
    assert set(figures["predicted_seconds"]["ddp"]) >= {"2", "3", "4096"}
    whole = figures["memory_bytes_per_rank"]["single"]["optimizer"]
    assert figures["memory_bytes_per_rank"]["ddp"]["optimizer"] == whole
    assert figures["memory_bytes_per_rank"]["sharded-2"]["optimizer"] < 0.45 * whole
    numbers = 2 * (32 * 32 + 32) + 1
    ring = 2 * 4 * numbers * 2 / 3
    assert figures["bytes_per_step"]["ddp"]["all_reduce"] == pytest.approx(ring, rel=0.02)
    assert all(math.isfinite(e) for e in figures["prediction_error"]["ddp"].values())
    assert Results.read(Path(figures["run"])).tables
    assert "METG" in Path(figures["report"]).read_text(encoding="utf-8")
