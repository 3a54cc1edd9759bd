"""Settings of the whole suite: one thread for each pytest-xdist worker, no deadlines."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

pytest_plugins = ["hidden_skips", "file_order"]

# Before torch is imported: workers that share the cores spin while they wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"

# On a shared machine an example may take any time: a deadline would be a timed assertion.
settings.register_profile("scitoolkit", deadline=None)
settings.load_profile("scitoolkit")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Give the device part of the contract suites the mark by which it is selected."""
    for item in items:
        if getattr(getattr(item, "function", None), "needs_device", False):
            item.add_marker(pytest.mark.device)


def pytest_collection():
    """Spare the collector of cycles the modules and tests, which live until the end."""
    gc.disable()


def pytest_collection_finish():
    """Collect from now on what tests leave, and no module or test."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure():
    """Let the interpreter finalise them: bindings of C++ report frozen objects as leaks."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def hdf5_is_intact():
    """Forget failed writes: after one, the command line would end the process of the tests."""
    yield
    # Not at the top: it must not import the package before the environment is set.
    from scitoolkit.core import uncaught

    uncaught._HDF5_FAILED.clear()
