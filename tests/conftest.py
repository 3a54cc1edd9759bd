"""Settings of the whole suite: one thread for each pytest-xdist worker."""

from __future__ import annotations

import os

# Before torch is imported: workers that share the cores spin while they wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
