"""Dtypes of the generated kernels, and their names in C, Triton and numpy."""

from __future__ import annotations

import numpy as np
import torch

REAL = {torch.float32: "float", torch.float64: "double"}
TRITON_REAL = {torch.float32: "float32", torch.float64: "float64"}
NUMPY_REAL = {torch.float32: np.float32, torch.float64: np.float64}
