"""Choice of the layers of embedding and fitting networks that have a trained time step."""

from __future__ import annotations

from typing import Literal

ResnetSteps = Literal["none", "same_width", "all"]
"""Layers whose tanh is scaled by a trained time step: none, those of unchanged width, or all."""
