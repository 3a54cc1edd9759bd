from __future__ import annotations

import sys
from pathlib import Path

# Worker processes are given `sys.path`, so they find what is beside these tests.
sys.path.insert(0, str(Path(__file__).parent))
