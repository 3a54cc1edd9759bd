"""Supervised processes: what becomes of a task whose worker dies, exceeds a limit or raises."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import time

import pytest

from scitoolkit.core.errors import BackendError
from scitoolkit.core.worker_pool import Limits, WorkerProcesses
from scitoolkit.testing.trials import running_pids, waited

pytestmark = pytest.mark.multiproc


def act(task, send):
    """Do what the task says in a worker."""
    match task:
        case ["die", number]:
            send("before")
            os.kill(os.getpid(), number)
        case ["sleep", folder]:
            child = subprocess.Popen(["sleep", "600"])
            (folder / "pids").write_text(f"{os.getpid()} {child.pid}\n")
            time.sleep(600)
        case ["allocate", size]:
            block = bytearray(size)
            time.sleep(600)
            return len(block)
        case ["raise", text]:
            raise LookupError(text)
        case ["raise unsendable"]:
            raise _Unsendable("here", 1)
        case ["threads"]:
            return os.environ["OMP_NUM_THREADS"]
    return task


class _Unsendable(Exception):
    def __init__(self, what, number):
        super().__init__(f"{what} {number}")


class _Missing:
    def __reduce__(self):
        return __import__, ("module_that_is_nowhere",)


@pytest.fixture(scope="module")
def pool():
    workers = WorkerProcesses(pickle.dumps(act), 2, limits=Limits(20.0, 2**30), threads=3)
    yield workers
    workers.close()


def outcomes(pool, *tasks):
    """Return what became of tasks, by their position."""
    for task in tasks:
        pool.submit(task)
    ended = []
    while len(ended) < len(tasks):
        ended += pool.wait(30.0)
    return [next(e for e in ended if e.task is task) for task in tasks]


def test_a_death_fails_only_its_own_task_and_the_worker_is_replaced(pool):
    died, fine = outcomes(pool, ["die", signal.SIGKILL], ["threads"])
    assert (died.failure, died.answer, died.messages) == ("worker died", None, ["before"])
    assert died.error == "the worker was killed by SIGKILL (out of memory?)"
    assert (fine.failure, fine.answer) == ("", "3")
    assert died.started <= died.finished
    assert [e.answer for e in outcomes(pool, [1], [2])] == [[1], [2]]
    assert pool.free == 2


def test_memory_is_limited_and_none_is_an_answer_too(pool):
    (greedy,) = outcomes(pool, ["allocate", 2**31])
    assert greedy.failure == "memory"
    assert greedy.error.endswith("more than 1024 MiB")
    (after,) = outcomes(pool, "")
    assert (after.failure, after.answer) == ("", "")


def test_an_exception_is_raised_here_and_leaves_the_pool_usable(pool):
    for task, kind, text in (
        (["raise", "no such place"], LookupError, "no such place"),
        (["raise unsendable"], RuntimeError, "_Unsendable: here 1"),
    ):
        pool.submit(task)
        with pytest.raises(kind, match=text):
            pool.wait(30.0)
    assert outcomes(pool, [3])[0].answer == [3]


def test_a_late_task_is_killed_with_its_children(tmp_path):
    pool = WorkerProcesses(pickle.dumps(act), 1, limits=Limits(seconds=0.5))
    try:
        (late,) = outcomes(pool, ["sleep", tmp_path])
        assert (late.failure, late.error) == ("time limit", "longer than 0.5 s")
        assert waited(lambda: not running_pids(tmp_path))
    finally:
        pool.close()


def test_a_function_that_no_worker_can_load_is_refused():
    pool = WorkerProcesses(pickle.dumps(_Missing()), 1)
    try:
        pool.submit([0])
        with pytest.raises(BackendError, match=r"(?s)cannot load.*module_that_is_nowhere"):
            pool.wait(30.0)
    finally:
        pool.close()


def test_a_result_sent_just_before_a_worker_ends_is_not_lost(monkeypatch):
    pool = WorkerProcesses(pickle.dumps(act), 1)
    worker = pool._pool[0]
    try:
        while not worker.ready:
            pool.wait(1.0)
        worker.kill()
        ours, theirs = multiprocessing.Pipe()
        worker.task, worker.pipe, worker.process = "task", ours, _Ending(theirs)
        theirs.send(("message", {"loss": 1.0}))
        monkeypatch.setattr(pool, "_replace", lambda worker: None)
        (ended,) = pool.wait(1.0)
        assert (ended.failure, ended.answer, ended.messages) == ("", 2.0, [{"loss": 1.0}])
    finally:
        worker.pipe.close()


class _Ending:
    """Process that sends its result after the pipe was read, and has ended when it is asked."""

    exitcode = -9

    def __init__(self, pipe):
        self.pipe, self.sentinel = pipe, pipe.fileno()

    def is_alive(self):
        self.pipe.send(("done", 2.0))
        self.pipe.close()
        return False
