"""Worker processes that fail, grow, take too long or raise cost their own order only."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.supervised_pool import Limits, SupervisedPool


def act(order, send):
    send(f"begun {order}")
    if order == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if order == "sleep":
        time.sleep(60)
    if order == "raise":
        raise KeyError("as asked")
    return order, os.environ["OMP_NUM_THREADS"], os.environ.get("CUDA_VISIBLE_DEVICES")


def ends(pool, count):
    found = []
    while len(found) < count:
        found += pool.wait(20)
    return found


@pytest.mark.multiproc
def test_orders_end_whatever_happens_to_their_workers():
    with SupervisedPool(act, 2, limits=Limits(seconds=2.0), threads=3, gpus=[5]) as pool:
        pool.submit("die")
        pool.submit(None)
        by_order = {e.order: e for e in ends(pool, 2)}
        assert by_order["die"].failure == "worker died"
        assert "SIGKILL" in by_order["die"].error
        assert by_order["die"].reports == ["begun die"]
        assert by_order[None].result == (None, "3", "5")
        # The dead worker was replaced; each is free again.
        pool.submit("sleep")
        pool.submit("again")
        by_order = {e.order: e for e in ends(pool, 2)}
        assert by_order["again"].result[0] == "again"
        slow = by_order["sleep"]
        assert slow.failure == "time limit"
        assert 2.0 <= slow.finished - slow.started < 20
        assert {e.worker for e in by_order.values()} == {0, 1}
        pool.submit("raise")
        with pytest.raises(KeyError, match="as asked") as caught:
            ends(pool, 1)
        assert "in act" in "".join(caught.value.__notes__)


def test_what_no_other_process_can_import_is_refused():
    lock = threading.Lock()
    with pytest.raises(ConfigError, match="cannot be sent to another process"):
        SupervisedPool(lambda order, send: lock, 1)
