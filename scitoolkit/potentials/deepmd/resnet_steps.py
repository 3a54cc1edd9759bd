"""Which layers of the embedding and fitting networks have a trained step."""

from __future__ import annotations

from typing import Literal

ResnetSteps = Literal["none", "same_width", "all"]
"""Layers whose tanh is scaled by a trained step: none, those that keep the width, or all."""
