import pytest
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.node_dropout import node_dropout, reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", [0, 1, -5, 2**63 + 11])
def test_kernel_equals_reference_bit_for_bit(dtype, seed):
    x, rows = torch.randn(40, 17, dtype=dtype), torch.randint(0, 2**40, (40,))
    for p in (0.0, 0.3, 0.9):
        expected = reference.node_dropout(x, rows, seed, round(p * 2**24), 1 / (1 - p))
        assert torch.equal(node_dropout(x, rows, p, seed), expected)


def test_share_and_independence():
    x, rows = torch.ones(2000, 64), torch.arange(2000)
    kept = node_dropout(x, rows, 0.4, 1) > 0
    other = node_dropout(x, rows, 0.4, 2) > 0
    assert abs(kept.float().mean() - 0.6) < 0.005
    assert abs((kept & other).float().mean() - 0.36) < 0.005
    # Neighbouring columns and rows are independent, too.
    assert abs((kept[:, 1:] & kept[:, :-1]).float().mean() - 0.36) < 0.005
    assert abs((kept[1:] & kept[:-1]).float().mean() - 0.36) < 0.005


def test_gradient_has_the_same_mask():
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    rows = torch.arange(5)
    assert torch.autograd.gradcheck(lambda x: node_dropout(x, rows, 0.5, 3), (x,))
    assert torch.autograd.gradgradcheck(lambda x: node_dropout(x, rows, 0.5, 3), (x,))


def test_bad_arguments():
    with pytest.raises(ConfigError, match="0 <= p < 1"):
        node_dropout(torch.ones(2, 2), torch.arange(2), 1.0, 0)
    with pytest.raises(DataError, match="row numbers"):
        node_dropout(torch.ones(2, 2), torch.arange(3), 0.5, 0)


@pytest.mark.parametrize("rows", [torch.arange(12)[::3], torch.arange(4, dtype=torch.int32)])
def test_row_numbers_of_any_stride_and_integer_dtype(rows):
    x = torch.ones(4, 50)
    expected = reference.node_dropout(x, rows.long().contiguous(), 3, 1 << 23, 2.0)
    assert torch.equal(node_dropout(x, rows, 0.5, 3), expected)
    with pytest.raises(DataError, match="integer row numbers"):
        node_dropout(x, rows.double(), 0.5, 3)
