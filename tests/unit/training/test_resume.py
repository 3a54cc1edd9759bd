"""Stop at a step in every way there is, resume, and compare the weights bit by bit."""

import json
import subprocess
import sys

import pytest
import torch

SLOW = pytest.mark.slow


def same(first, second) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def close(first, second) -> bool:
    return all(torch.allclose(first[k], second[k], atol=1e-6, rtol=0) for k in first)


# Every way to stop a process, and with the sharded strategy every one to stop two, is in the
# suite once: the workflows' tests stop a run by SIGKILL and SIGTERM.
@pytest.mark.multiproc
@pytest.mark.parametrize(
    ("step", "name", "code"),
    [
        (6, "SIGINT", 130),
        (4, "SIGTERM", 130),  # after the last batch of an epoch
        pytest.param(3, "SIGKILL", 1, marks=SLOW),
        pytest.param(5, "SIGTERM", 130, marks=SLOW),
    ],
)
def test_single_process_resumes_bit_for_bit(start, whole, step, name, code):
    assert start(1, stop=(step, name))[0] == code
    assert same(start(1, resume=True)[1], whole(1))


@pytest.mark.multiproc
@pytest.mark.parametrize(
    ("strategy", "step", "name", "code"),
    [
        ("ddp", 5, "SIGUSR1", 130),
        ("sharded", 3, "SIGKILL", 1),
        pytest.param("ddp", 3, "SIGKILL", 1, marks=SLOW),
        pytest.param("sharded", 5, "SIGUSR1", 130, marks=SLOW),
    ],
)
def test_two_processes_resume_bit_for_bit(start, whole, strategy, step, name, code):
    training = {"strategy": strategy}
    stopped, _ = start(2, stop=(step, name), on_rank=1, training=training)
    assert stopped == code
    _, weights = start(2, resume=True, training=training)
    assert same(weights, whole(2, strategy))


@pytest.mark.multiproc
@pytest.mark.parametrize(
    ("strategy", "stage", "exchange"),
    [
        ("sharded", 2, "sdp4bit"),
        pytest.param("ddp", 3, "error_bounded", marks=SLOW),
        pytest.param("sharded", 1, "full", marks=SLOW),
    ],
)
def test_exchanges_that_keep_something_resume_bit_for_bit(start, whole, strategy, stage, exchange):
    sharding, chosen = {"stage": stage}, {"name": exchange}
    training = {"strategy": strategy, "sharding": sharding, "exchange": chosen}
    assert start(2, stop=(3, "SIGKILL"), on_rank=1, training=training)[0] == 1
    _, weights = start(2, resume=True, training=training)
    assert same(weights, whole(2, strategy, stage=stage, exchange=exchange))


@pytest.mark.multiproc
def test_parameters_gathered_in_bfloat16_halve_the_bytes_and_resume_bit_for_bit(start, tmp_path):
    plain = {
        "strategy": "sharded",
        "sharding": {"group_mib": 1e-4},
        "precision": "bf16",
        "count_traffic": True,
    }
    mixed = {**plain, "gather_precision": "bf16"}
    received = {}
    for name, training in (("plain", plain), ("mixed", mixed)):
        code, weights = start(2, name=name, result=name, training=training)
        assert code == 0
        (file,) = tmp_path.glob(f"{name}/*/traffic.json")
        counts = json.loads(file.read_text())["collectives"]
        received[name] = sum(c["bytes"] for k, c in counts.items() if k.startswith("all_gather"))
    assert 0.45 < received["mixed"] / received["plain"] < 0.55
    assert all(w.dtype == torch.float32 for w in weights.values())
    assert start(2, stop=(3, "SIGKILL"), on_rank=1, training=mixed)[0] == 1
    assert same(start(2, resume=True, training=mixed)[1], weights)


@pytest.mark.slow
@pytest.mark.multiproc
def test_a_sharded_training_continues_on_fewer_ranks(start):
    plain = {"dropout": 0.0}
    _, one = start(1, name="one", result="one", **plain)
    sharded = {"strategy": "sharded"}
    assert start(4, name="r", stop=(3, "SIGTERM"), training=sharded, **plain)[0] == 130
    code, _ = start(2, name="r", resume=True, stop=(7, "SIGTERM"), training=sharded, **plain)
    assert code == 130
    code, last = start(1, name="r", resume=True, result="r", **plain)
    assert code == 0
    assert close(one, last)


@pytest.mark.multiproc
def test_a_failing_rank_ends_all_with_its_exit_code(start, capfd):
    assert start(2, stop=(2, "data"), on_rank=1)[0] == 3
    assert start(2, name="b", training={"strategy": "single"})[0] == 2
    assert start(2, name="c", training={"batch_size": 13})[0] == 2
    assert start(2, name="d", nan_rank=1)[0] == 4
    error = capfd.readouterr().err
    assert "13 is not divisible by 2 processes" in error
    assert "NaN or Inf in batch tensor x" in error


@pytest.mark.multiproc
def test_an_error_in_one_rank_ends_all_with_its_exit_code(start, capfd):
    for poison in ("loss", "metrics"):
        code, _ = start(2, name=poison, training={"strategy": "ddp"}, poison=poison)
        err = capfd.readouterr().err
        assert code == 3, err
        assert "rank 1: a sample that cannot be used" in err
    # Inside FSDP2's own collectives there is no agreement, but nobody waits either.
    code, _ = start(2, name="sharded", training={"strategy": "sharded"}, poison="loss")
    assert code == 3


@pytest.mark.multiproc
@pytest.mark.parametrize(
    ("rank", "told"), [(1, "rank 1 was killed"), (0, "rank 0 does not answer")]
)
def test_a_killed_rank_is_named_by_the_others(start, capfd, rank, told):
    assert start(2, stop=(2, "SIGKILL"), on_rank=rank)[0] == 1
    error = capfd.readouterr().err
    assert f"rank {1 - rank} lost another rank at step 3" in error
    assert told in error


@pytest.mark.multiproc
def test_a_stopped_rank_is_named_and_nobody_waits_for_it(start, capfd):
    # The launcher ends the stopped rank itself, some time after the first has failed.
    training = {"timeout_seconds": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("scitoolkit.training.launch.GRACE_SECONDS", 6.0)
        assert start(2, stop=(2, "SIGSTOP"), on_rank=1, training=training)[0] == 1
    assert "rank 1 was killed or stopped" in capfd.readouterr().err


@pytest.mark.multiproc
@pytest.mark.parametrize(
    ("differs", "told"),
    [
        ({"training": {"clip_norm": 2.0}}, "training: not those of rank 0 on rank 1"),
        ({"normalised": True}, "model: not those of rank 0 on rank 1"),
        ({"samples": 50}, "batches of an epoch: not those of rank 0 on rank 1"),
    ],
)
def test_ranks_that_differ_are_named_before_the_first_step(start, capfd, differs, told):
    code, _ = start(2, differs=differs)
    assert code == 2
    error = capfd.readouterr().err
    assert f"[0] ConfigError: {told}" in error
    assert f"[1] ConfigError: {told}" in error


def torchrun(ranks: int, arguments: list[str], *, module: str) -> int:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={ranks}", "-m", module, *arguments]
    return subprocess.run(command, check=False, capture_output=True, timeout=120).returncode


@pytest.mark.multiproc
def test_torchrun_trains_to_the_same_bits(start, whole):
    code, theirs = start(2, by=torchrun, training={"strategy": "ddp"})
    assert code == 0
    assert same(whole(2, "ddp"), theirs)
