"""Rank and world size of this process, as set by torchrun, Slurm, mpirun or `--nproc`."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.uncaught import hdf5_failed

# Variables of a launcher: rank, number of ranks, rank on the node.
_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")
_HYDRA = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")  # MPICH, Intel MPI
_PALS = ("PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK")  # Cray
_NODE_SIZES = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS_PER_NODE",
    "PMI_LOCAL_SIZE",
)


@dataclass(frozen=True)
class ProcessEnvironment:
    """Rank, world size and rendezvous address of this process."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    master_address: str = "127.0.0.1"
    master_port: int = 29500


def process_environment(variables: Mapping[str, str] | None = None) -> ProcessEnvironment:
    """Read rank and world size from the variables of torchrun, mpirun or srun, in this order.

    mpirun passes no address of rank 0: on several nodes, MASTER_ADDR has to contain it.

    Args:
        variables: environment variables; those of this process if None.

    Raises:
        ConfigError: a variable is not a number.

    Example:
        >>> process_environment({"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1",
        ...     "SLURM_STEP_NODELIST": "node[07-08]", "SLURM_JOB_ID": "123"})
        ProcessEnvironment(rank=3, world_size=4, local_rank=1, master_address='node07', \
master_port=20123)
    """
    env = os.environ if variables is None else variables
    try:
        if "RANK" in env and "WORLD_SIZE" in env:
            return ProcessEnvironment(
                int(env["RANK"]),
                int(env["WORLD_SIZE"]),
                int(env.get("LOCAL_RANK", env["RANK"])),
                env.get("MASTER_ADDR", "127.0.0.1"),
                int(env.get("MASTER_PORT", "29500")),
            )
        # Before Slurm: in a batch job, mpirun may start its ranks from a task of srun.
        for names in (_OPEN_MPI, _HYDRA):
            if all(name in env for name in names):
                return _of_mpirun(env, names)
        # sbatch alone sets SLURM_NTASKS too; only srun's tasks have a step's node list.
        if "SLURM_PROCID" in env and "SLURM_STEP_NODELIST" in env:
            nodes = env["SLURM_STEP_NODELIST"]
            port = 20000 + int(env.get("SLURM_JOB_ID", "0")) % 20000
            return ProcessEnvironment(
                int(env["SLURM_PROCID"]),
                int(env.get("SLURM_STEP_NUM_TASKS", env.get("SLURM_NTASKS", "1"))),
                int(env.get("SLURM_LOCALID", "0")),
                env.get("MASTER_ADDR", first_node(nodes)),
                int(env.get("MASTER_PORT", str(port))),
            )
        if all(name in env for name in _PALS):
            return _of_mpirun(env, _PALS)
    except ValueError as error:
        raise ConfigError(
            f"a variable of the launcher is not a number ({error})",
            where="RANK, WORLD_SIZE, LOCAL_RANK, MASTER_PORT, SLURM_*, OMPI_COMM_WORLD_* or PMI_*",
            fix="start with --nproc N, torchrun, srun or mpirun",
        ) from None
    return ProcessEnvironment()


def _of_mpirun(env: Mapping[str, str], names: tuple[str, str, str]) -> ProcessEnvironment:
    rank, world_size, local_rank = (int(env[name]) for name in names)
    address, port = env.get("MASTER_ADDR", "127.0.0.1"), int(env.get("MASTER_PORT", "29500"))
    return ProcessEnvironment(rank, world_size, local_rank, address, port)


def first_node(nodes: str) -> str:
    """Return the first host of a Slurm node list.

    Example:
        >>> first_node("gpu[012-015,020],cpu1"), first_node("a1,a2")
        ('gpu012', 'a1')
    """
    match = re.match(r"([^,\[]+)(?:\[([0-9]+))?", nodes)
    return (match[1] + (match[2] or "")) if match else nodes


def current_rank() -> int:
    """Return the rank of this process, 0 without a launcher."""
    return process_environment().rank


def world_size() -> int:
    """Return the number of processes of the job."""
    return process_environment().world_size


def available_cores() -> int:
    """Return the number of cores that this process may use.

    On systems without processor affinity, such as macOS, these are all cores of the machine.

    Example:
        >>> available_cores() >= 1
        True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def node_size() -> int:
    """Return the number of processes on this node, by default those of the whole job.

    Example:
        >>> node_size()
        1
    """
    size = next((os.environ[name] for name in _NODE_SIZES if name in os.environ), "")
    return int(size) if size.isdigit() else world_size()


def launch_name(variables: Mapping[str, str] | None = None) -> str:
    """Return an identifier of this launch that survives restarts by the launcher, "" without one.

    Args:
        variables: environment variables; those of this process if None.

    Example:
        >>> launch_name({"SLURM_JOB_ID": "41"}), launch_name({"TORCHELASTIC_RUN_ID": "a1"})
        ('slurm-41', 'torchrun-a1')
    """
    env = os.environ if variables is None else variables
    elastic = env.get("TORCHELASTIC_RUN_ID", "")
    if elastic == "none":  # torchrun's name of every launch without --standalone or --rdzv-id
        elastic = f"{env.get('MASTER_ADDR', '')}:{env.get('MASTER_PORT', '')}"
    if "SLURM_JOB_ID" in env:
        return f"slurm-{env['SLURM_JOB_ID']}"
    return f"torchrun-{elastic}" if elastic else ""


def was_restarted(variables: Mapping[str, str] | None = None) -> bool:
    """Return whether torchrun or Slurm has restarted this launch.

    Example:
        >>> was_restarted({"SLURM_RESTART_COUNT": "1"}), was_restarted({})
        (True, False)
    """
    env = os.environ if variables is None else variables
    counts = (env.get(f"{of}_RESTART_COUNT", "0") for of in ("SLURM", "TORCHELASTIC"))
    return any(count.isdigit() and int(count) > 0 for count in counts)


def leave(code: int) -> NoReturn:
    """Exit with a code; skip the shutdown of the interpreter if a library can crash in it.

    gloo's threads, of several ranks, can abort (SIGABRT) during the interpreter's shutdown, and
    HDF5 can crash on handles that it could not release. This would replace the exit code of a
    process that has already saved and closed everything.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    if world_size() > 1 or hdf5_failed():
        os._exit(code)
    sys.exit(code)


@contextlib.contextmanager
def one_process() -> Iterator[bool]:
    """Yield True in the only process of a job.

    Raises:
        ConfigError: there are several processes, each of which would do the whole work.
    """
    number = world_size()
    if number > 1:
        raise ConfigError(
            f"{number} processes, but this job runs in one",
            where="--nproc, torchrun, srun or mpirun",
            allowed="1",
            fix="start it without --nproc",
        )
    yield True
