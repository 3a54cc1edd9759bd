from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # collection asks the class what it serves
from padded_rows import PaddedRows

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.codegen import kernel_backends
from scitoolkit.ops.spmm import SparseMatrix, spmm
from scitoolkit.testing import KernelContract


class TestPaddedRows(KernelContract):
    backend = PaddedRows


def test_it_is_listed_picked_by_name_and_suggested():
    assert kernel_backends.member("padded_rows").problem == ""
    matrix = SparseMatrix.from_coo([0, 0, 1], [1, 2, 0], torch.tensor([1.0, 2.0, 3.0]), (2, 3))
    x = torch.arange(6.0).reshape(3, 2)
    assert spmm(matrix, x, backend="padded_rows").tolist() == [[10, 13], [0, 3]]
    with pytest.raises(ConfigError, match="Fix: padded_rows"):
        spmm(matrix, x, backend="padded_row")
