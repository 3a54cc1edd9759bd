"""How a dim of a field goes on beyond its ends."""

from __future__ import annotations

from typing import Literal

Padding = Literal["circular", "zeros", "edge"]
