"""Executors of samples: processes of this machine, workers of a Ray cluster, or MPI ranks.

Workers exchange data only through the files of the samples, so all must have access to the
campaign's folder. An order contains the parameters and the seed, so the result does not depend on
the worker.
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
class WorkerPool:
    """Pool of workers.

    Attributes:
        executor: runs functions on the workers; None for processes that are started when needed.
        workers: number of samples made in parallel.
    """

    executor: Executor | None
    workers: int


@contextmanager
def pool(place: Place, processes: int) -> Iterator[WorkerPool | None]:
    """Yield the pool of workers; None in an MPI rank that was a worker.

    Args:
        place: kind of workers.
        processes: number of samples made in parallel; MPI uses all ranks but the first, and Ray
            with RAY_ADDRESS all processors of that cluster.

    Raises:
        BackendError: Ray or mpi4py is missing, or there is no cluster.
        ConfigError: there are several MPI ranks without `executor=mpi`, or one rank with it.
    """
    if place == "mpi":
        with _mpi() as workers:
            yield workers
        return
    ranks = max(int(os.environ.get(name, "1")) for name in SIZES)
    if ranks > 1:
        raise ConfigError(
            f"{ranks} MPI ranks, each of which would make all samples",
            where="executor",
            fix="executor=mpi",
        )
    with one_process():
        if place == "processes":
            yield WorkerPool(None, processes)
        else:
            with _ray(processes) as workers:
                yield workers


@contextmanager
def _mpi() -> Iterator[WorkerPool | None]:
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except ImportError as error:
        raise missing_extra("mpi4py", "mpi", f"executor=mpi ({error})") from None
    except RuntimeError as error:  # mpi4py is installed without an MPI library
        raise BackendError(
            f"executor=mpi does not start ({error})", fix="install MPICH or Open MPI"
        ) from None
    size = MPI.COMM_WORLD.Get_size()
    if size < 2:
        raise ConfigError(
            "one MPI rank: there is no worker",
            where="executor",
            fix="mpirun -n N, N > 1, or executor=processes",
        )
    # Every rank is one process to the rest of the toolkit, whatever Slurm says.
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:
        yield None if executor is None else WorkerPool(executor, size - 1)


@contextmanager
def _ray(processes: int) -> Iterator[WorkerPool]:
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "ray", f"executor=ray ({error})") from None
    address = os.environ.get("RAY_ADDRESS")
    where: dict[str, Any] = {"address": address} if address else {"num_cpus": processes}
    try:
        ray.init(**where, logging_level="error", log_to_driver=False)
    except (ConnectionError, RuntimeError, OSError) as error:
        raise BackendError(
            f"executor=ray does not start ({error})",
            fix="RAY_ADDRESS=HOST:PORT of a running cluster, or none for this machine",
        ) from None
    try:
        yield WorkerPool(RayExecutor(ray), int(ray.cluster_resources().get("CPU", processes)))
    finally:
        ray.shutdown()


class RayExecutor(Executor):
    """Executor on the workers of a Ray cluster, one processor per function, without retries.

    Args:
        ray: the package, connected to a cluster.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Send a function to a worker."""
        # A sample that kills its worker would kill the next one too.
        remote = self._ray.remote(num_cpus=1, max_retries=0)(fn)
        future: Future[Any] = remote.remote(*args, **kwargs).future()
        return future
