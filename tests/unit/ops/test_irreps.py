"""Irreps as text, lists and e3nn's objects: one reading, one order; nobody imports e3nn."""

import copy
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.irreps import Irrep, Irreps

IRREPS = st.tuples(st.integers(0, 7), st.sampled_from((-1, 1)))
PAIRS = st.tuples(st.integers(0, 200), IRREPS)
LISTS = st.lists(PAIRS, max_size=8)


@given(LISTS)
def test_text_is_read_back(pairs):
    irreps = Irreps(pairs)
    assert irreps == tuple(pairs)
    assert Irreps(str(irreps)) == Irreps(irreps) == Irreps(list(irreps)) == irreps
    assert Irreps(str(irreps).replace("+", " +\n ").replace("x", " x ")) == irreps
    assert irreps.dim == sum(mul * (2 * degree + 1) for mul, (degree, _) in pairs)
    assert copy.deepcopy(irreps) == pickle.loads(pickle.dumps(irreps)) == irreps


@given(LISTS)
def test_sorting_is_a_stable_permutation(pairs):
    irreps = Irreps(pairs)
    order = irreps.sort()
    assert [irreps[i] for i in order.inv] == list(order.irreps)
    assert [order.irreps[i] for i in order.p] == list(irreps)
    keys = [(irrep, i) for (_, irrep), i in zip(order.irreps, order.inv, strict=True)]
    assert keys == sorted(keys)


@given(LISTS)
def test_e3nn_reads_and_sorts_the_same(pairs):
    o3 = pytest.importorskip("e3nn.o3")
    ours, theirs = Irreps(pairs), o3.Irreps(pairs)
    assert str(ours) == str(theirs)
    assert ours.dim == theirs.dim
    assert o3.Irreps(ours) == theirs
    assert Irreps(theirs) == Irreps(list(theirs)) == Irreps(str(theirs)) == ours
    a, b = ours.sort(), theirs.sort()
    assert (str(a.irreps), a.p, a.inv) == (str(b.irreps), b.p, b.inv)


@given(IRREPS, IRREPS)
def test_products_are_e3nns(left, right):
    o3 = pytest.importorskip("e3nn.o3")
    product = Irrep(*left).product(Irrep(*right))
    assert [str(each) for each in product] == [str(i) for i in o3.Irrep(*left) * o3.Irrep(*right)]
    assert sum(each.dim for each in product) == Irrep(*left).dim * Irrep(*right).dim


def test_all_ways_to_write_irreps():
    o3 = pytest.importorskip("e3nn.o3")
    assert str(Irreps(" 2o+ 3 x1e +3x1y")) == "1x2o+3x1e+3x1o"
    assert str(Irreps(["0e", (2, "1o"), [3, [2, 1]], (4, o3.Irrep("1e"))])) == "1x0e+2x1o+3x2e+4x1e"
    assert Irreps(o3.Irrep("2e")) == Irreps(Irrep(2, 1)) == Irreps("2e")
    assert Irreps() == Irreps("") == Irreps(" ") == Irreps([]) == ()


@pytest.mark.parametrize(
    ("irreps", "term"),
    [
        ("32x0e + 32x1", "32x1"),
        ("32x0e ++ 1o", ""),
        ("0e+", ""),
        ("-1x0e", "-1x0e"),
        ("1.5x0e", "1.5x0e"),
        ("4x0z", "4x0z"),
        ("0e, 1o", "0e, 1o"),
        ([(32, (1, 2))], r"32x\(1, 2\)"),
        ([(32, (1.0, 1))], "32x1.0e"),
        ((32, (1, 1)), "32"),
        (None, "None"),
    ],
)
def test_a_wrong_term_is_named(irreps, term):
    with pytest.raises(ConfigError, match=f"irrep '{term}'. Allowed: .*degree.* Fix: .*'32x0e"):
        Irreps(irreps)


def test_nothing_imports_e3nn():
    code = (
        "import sys, torch;"
        "from scitoolkit.ops.spherical_harmonics import spherical_harmonics;"
        "from scitoolkit.ops.symmetric_contraction import ContractionSpec;"
        "from scitoolkit.ops.tensor_product import TensorProduct, channelwise_instructions;"
        "sides = '4x0e+4x1o', '0e+1o';"
        "product = TensorProduct(*sides, *channelwise_instructions(*sides, '0e+1o'));"
        "harmonics = spherical_harmonics('0e+1o', torch.randn(3, 3), True);"
        "product(torch.randn(3, 16), harmonics).sum().backward();"
        "ContractionSpec.build('0e+1o', '0e', 2).num_paths;"
        "sys.exit('e3nn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
