"""Workers of functions: processes of this machine, workers of a Ray cluster, or MPI ranks.

Samples of generators and trials of searches run on them. A caller gives up to `workers` functions
at a time. What limits a function, or survives its death, is a supervised process on the worker's
node (`supervised_pool`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from scitoolkit.core.errors import BackendError, ConfigError, missing_extra
from scitoolkit.core.processes import one_process

Place = Literal["processes", "ray", "mpi"]
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
"""Environment variables in which Open MPI and MPICH pass the number of ranks."""


@dataclass(frozen=True)
class Pool:
    """Pool of workers.

    Attributes:
        executor: runs functions on the workers; None for processes that are started when needed.
        workers: number of functions that run in parallel.
    """

    executor: Executor | None
    workers: int


@contextmanager
def pool(
    place: Place, processes: int, *, gpus: int = 0, key: str = "executor"
) -> Iterator[Pool | None]:
    """Yield the pool of workers; None in an MPI rank that was a worker.

    Args:
        place: kind of workers.
        processes: number of functions that run in parallel; MPI uses all ranks but the first, and
            Ray with RAY_ADDRESS all processors of that cluster.
        gpus: GPUs that Ray reserves for a function.
        key: of the configuration that sets the place, for messages.

    Raises:
        BackendError: Ray or mpi4py is missing, or there is no cluster.
        ConfigError: there are several MPI ranks without `executor=mpi`, or one rank with it.
    """
    if place == "mpi":
        with _mpi(key) as workers:
            yield workers
        return
    ranks = max(int(os.environ.get(name, "1")) for name in SIZES)
    if ranks > 1:
        raise ConfigError(
            f"{ranks} MPI ranks, each of which would do all the work",
            where=key,
            fix=f"{key}=mpi",
        )
    with one_process():
        if place == "processes":
            yield Pool(None, processes)
        else:
            with _ray(processes, gpus, key) as workers:
                yield workers


@contextmanager
def _mpi(key: str) -> Iterator[Pool | None]:
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except ImportError as error:
        raise missing_extra("mpi4py", "mpi", f"{key}=mpi ({error})") from None
    except RuntimeError as error:  # mpi4py is installed without an MPI library
        raise BackendError(
            f"{key}=mpi does not start ({error})", fix="install MPICH or Open MPI"
        ) from None
    size = MPI.COMM_WORLD.Get_size()
    if size < 2:
        raise ConfigError(
            "one MPI rank: there is no worker",
            where=key,
            fix=f"mpirun -n N, N > 1, or {key}=processes",
        )
    # Every rank is one process to the rest of the toolkit, whatever Slurm says.
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        yield None if executor is None else Pool(executor, size - 1)


@contextmanager
def _ray(processes: int, gpus: int, key: str) -> Iterator[Pool]:
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "ray", f"{key}=ray ({error})") from None
    address = os.environ.get("RAY_ADDRESS")
    where: dict[str, Any] = {"address": address} if address else {"num_cpus": processes}
    try:
        # A caller who has connected already stays connected.
        if not (connected := ray.is_initialized()):
            ray.init(**where, logging_level="error", log_to_driver=False)
    except (ConnectionError, RuntimeError, OSError) as error:
        raise BackendError(
            f"{key}=ray does not start ({error})",
            fix="RAY_ADDRESS=HOST:PORT of a running cluster, or none for this machine",
        ) from None
    try:
        workers = int(ray.cluster_resources().get("CPU", processes))
        yield Pool(RayExecutor(ray, gpus), workers)
    finally:
        if not connected:
            ray.shutdown()


class RayExecutor(Executor):
    """Executor on the workers of a Ray cluster, one processor per function, without retries.

    Args:
        ray: the package, connected to a cluster.
        gpus: reserved for each function.
    """

    def __init__(self, ray: Any, gpus: int = 0) -> None:
        self._ray, self._gpus = ray, gpus

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Send a function to a worker."""
        # A function that kills its worker would kill the next one too.
        remote = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0)(fn)
        future: Future[Any] = remote.remote(*args, **kwargs).future()
        return future
