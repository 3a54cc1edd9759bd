from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.launch import ProcessEnvironment, launch, process_environment

SLURM = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "41"}
WORKFLOWS = Path(__file__).resolve().parents[3] / "workflows"
STEP = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "9", "SLURM_STEP_NODELIST": "n[3-4,9]"}


def test_without_a_launcher_a_process_is_alone():
    assert process_environment({}) == ProcessEnvironment()
    # sbatch's own script is no task of srun.
    assert process_environment({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}) == ProcessEnvironment()


def test_slurm_and_torchrun_are_read():
    found = process_environment({**SLURM, **STEP})
    assert (found.rank, found.world_size, found.local_rank) == (5, 8, 1)
    assert found.master_address == "n3"
    named = process_environment({**SLURM, **STEP, "MASTER_ADDR": "a", "MASTER_PORT": "7"})
    assert (named.master_address, named.master_port) == ("a", 7)
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_PORT": "3"}
    assert process_environment({**torchrun, **SLURM, **STEP}).world_size == 2


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
HYDRA = {"PMI_RANK": "5", "PMI_SIZE": "8", "MPI_LOCALRANKID": "1"}
PALS = {"PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1"}


@pytest.mark.parametrize("variables", [OPEN_MPI, HYDRA, PALS])
def test_mpirun_is_read(variables):
    assert process_environment(variables) == ProcessEnvironment(5, 8, 1)
    address = {"MASTER_ADDR": "n3", "MASTER_PORT": "20041"}
    assert process_environment({**variables, **address}) == ProcessEnvironment(5, 8, 1, "n3", 20041)
    # A search over MPI ranks makes each of them a job of one process.
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    assert process_environment({**variables, **alone}) == ProcessEnvironment()


@pytest.mark.parametrize("variables", [OPEN_MPI, HYDRA])
def test_mpirun_in_a_batch_job_of_slurm_is_not_taken_for_srun(variables):
    # mpirun starts a daemon on each node with srun: all ranks inherit its SLURM_PROCID.
    daemon = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", **STEP}
    found = process_environment({**daemon, **variables})
    assert (found.rank, found.world_size, found.local_rank) == (5, 8, 1)
    # srun --mpi=pmi2
    plain = {"PMI_RANK": "5", "PMI_SIZE": "8"}
    assert process_environment({**SLURM, **STEP, **plain}).master_address == "n3"


def test_variables_that_are_no_numbers_are_refused():
    with pytest.raises(ConfigError, match="not a number"):
        process_environment({"RANK": "one", "WORLD_SIZE": "2"})


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module which ranks can run."""

    def write(text: str) -> str:
        (tmp_path / "ranked.py").write_text("import os, sys, time\n" + text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return "ranked"

    return write


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("sys.exit(0)", 0),
        ("sys.exit(3 if os.environ['RANK'] == '1' else 0)", 3),
        # A rank that only lost its peer ends with 1, and does not hide the cause.
        ("sys.exit(1) if os.environ['RANK'] == '0' else (time.sleep(0.3), sys.exit(4))", 4),
        ("os.kill(os.getpid(), 9) if os.environ['RANK'] == '0' else sys.exit(0)", 1),
    ],
)
def test_the_exit_code_is_that_of_the_cause(module, text, code):
    assert launch(2, [], module=module(text)) == code


def test_ranks_that_a_forwarded_signal_ends_at_their_start_were_interrupted(module):
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    assert launch(2, [], module=module("time.sleep(60)")) == 130


def test_a_signal_while_the_ranks_are_being_started_reaches_every_rank_once(
    module, monkeypatch, tmp_path
):
    wait_and_count = f"""
import signal
received = []
signal.signal(signal.SIGUSR1, lambda *_: received.append(1))
open({str(tmp_path)!r} + "/ready" + os.environ["RANK"], "w").close()
time.sleep(1)
sys.exit(10 + len(received))
"""
    name = module(wait_and_count)
    start = subprocess.Popen

    def signalled(*arguments, **options):
        process = start(*arguments, **options)
        ready = tmp_path / f"ready{options['env']['RANK']}"
        while not ready.exists():
            time.sleep(0.01)
        if options["env"]["RANK"] == "0":  # which is not yet in the launcher's list
            os.kill(os.getpid(), signal.SIGUSR1)
        return process

    monkeypatch.setattr(subprocess, "Popen", signalled)
    assert launch(2, [], module=name) == 11


def test_every_rank_knows_its_place_and_its_arguments(module, capfd):
    name = module("print(os.environ['RANK'], os.environ['WORLD_SIZE'], sys.argv[1:])")
    assert launch(2, ["a", "b=1"], module=name) == 0
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == ["0 2 ['a', 'b=1']", "1 2 ['a', 'b=1']"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no processor affinity")
def test_ranks_share_the_cores_that_the_launcher_may_use(module, monkeypatch, capfd):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert launch(1, [], module=module("print(os.environ['OMP_NUM_THREADS'])")) == 0
    assert int(capfd.readouterr().out) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("script", sorted(WORKFLOWS.glob("*/launch/slurm.sbatch")), ids=str)
@pytest.mark.parametrize("code", [0, 130, 3])
def test_slurm_scripts_requeue_when_time_ran_out(tmp_path, script, code):
    for name, ends in (("srun", code), ("scontrol", 0)):
        fake = tmp_path / name
        fake.write_text(f'#!/bin/sh\necho {name} "$@" "port=${{MASTER_PORT:-}}"\nexit {ends}\n')
        fake.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_ID": "41",
        "SLURM_CPUS_PER_TASK": "3",
    }
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    first, *rest = done.stdout.splitlines()
    assert "--cpus-per-task=3" in first
    assert first.endswith("port=")  # rank 0's port follows from the job's id
    assert rest == (["scontrol requeue 41 port="] if code == 130 else [])


@pytest.mark.parametrize("batch", [("pbs", "qsub"), ("lsf", "bsub")], ids=lambda pair: pair[0])
@pytest.mark.parametrize("code", [0, 130, 3])
def test_pbs_and_lsf_scripts_submit_themselves_again_when_time_ran_out(tmp_path, batch, code):
    system, submit = batch
    for name, ends in (("mpirun", code), (submit, 0)):
        fake = tmp_path / name
        fake.write_text(f'#!/bin/sh\necho {name} "$@" "resume=${{RESUME:-}}"\nexit {ends}\n')
        fake.chmod(0o755)
    hosts = tmp_path / "hosts"
    hosts.write_text("n3\nn3\nn4\n")
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "PBS_JOBID": "41.server",
        "PBS_NODEFILE": str(hosts),
        "LSB_JOBID": "41",
        "LSB_DJOB_HOSTFILE": str(hosts),
    }
    script = WORKFLOWS / "field_surrogate" / "launch" / f"{system}.sh"
    done = subprocess.run(
        ["bash", script], env=environment, capture_output=True, text=True, cwd=WORKFLOWS.parent
    )
    assert done.returncode == code, done.stderr
    first, *rest = done.stdout.splitlines()
    assert "-n 3 env MASTER_ADDR=n3 MASTER_PORT=20041" in first
    assert "training.batch_size=3" in first
    assert len(rest) == (code == 130)
    assert all("RESUME=--resume" in line or "resume=--resume" in line for line in rest)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no threads in /proc")
def test_leaving_the_group_ends_its_threads_though_ddp_held_it():
    code = (
        "import os, torch\n"
        "from scitoolkit.training import TrainingConfig\n"
        "from scitoolkit.training.processes import process_group\n"
        "def threads():\n"
        "    return len(os.listdir('/proc/self/task'))\n"
        "def step():\n"
        "    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 3))\n"
        "    net(torch.ones(2, 3)).sum().backward()\n"
        "with process_group(TrainingConfig(strategy='sharded', device='cpu')):\n"
        "    step()\n"
        "    joined = threads()\n"
        "print(joined, threads())\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    joined, left = map(int, done.stdout.split())
    assert left <= joined - 3  # gloo's


@pytest.mark.multiproc
def test_plain_torchrun_works_too_also_for_several_trainings(tmp_path):
    code = (
        "from scitoolkit.training import TrainingConfig\n"
        "from scitoolkit.training.processes import process_group, gather_objects\n"
        "from scitoolkit.training.launch import current_rank, leave\n"
        "for _ in range(3):\n"
        "    with process_group(TrainingConfig(batch_size=2)):\n"
        "        assert gather_objects(current_rank()) == [0, 1]\n"
        "leave(0)\n"
    )
    (tmp_path / "job.py").write_text(code)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", str(tmp_path / "job.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_cores_are_counted_on_systems_without_processor_affinity(monkeypatch):
    from scitoolkit.compression.threads import threads
    from scitoolkit.core.processes import available_cores

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads() == available_cores() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    assert threads() == available_cores() == os.cpu_count()
