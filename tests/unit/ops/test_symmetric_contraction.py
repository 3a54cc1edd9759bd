"""The generated many-body product against its reference and mace-torch: all derivatives."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.symmetric_contraction import (
    ContractionSpec,
    operators,
    symmetric_contraction,
)
from scitoolkit.ops.symmetric_contraction.coupling import monomials

o3 = pytest.importorskip("e3nn.o3")

GOLDEN = Path(__file__).parents[2] / "golden" / "mace_symmetric_contraction.npz"
CASES = {
    "linear": ("0e+1o", "0e", 1, 8),
    "no-path": ("0e+1o", "0e+1o+2e", 2, 11),  # 2e has no path of order 1
    "cubic": ("0e+1o+2e", "0e+1o", 3, 19),
    "quartic": ("0e+1o", "0e+1o", 4, 3),
    "unnatural": ("0e+1e+1o", "0o+1e", 2, 4),
}


def _inputs(spec, channels, num_nodes=13, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (num_nodes, spec.dim_in, channels), (3, spec.num_paths, channels)
    inputs = [torch.randn(each, generator=generator, dtype=torch.float64) for each in shapes]
    species = 2 * torch.randint(0, 2, (num_nodes,), generator=generator)  # element 1 is absent
    return [each.to(dtype).requires_grad_() for each in inputs], species


def _derivatives(spec, inputs, species, backend):
    """Values, gradients, and the gradients of a scalar of these."""
    out = symmetric_contraction(spec, *inputs, species, backend=backend)
    probe = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).reshape(out.shape)
    probe.requires_grad_()
    first = torch.autograd.grad(out, inputs, probe, create_graph=True)
    scalar = sum(
        (each * torch.cos(torch.arange(each.numel(), dtype=out.dtype)).reshape(each.shape)).sum()
        for each in first
    )
    second = torch.autograd.grad(
        scalar, [*inputs, probe], allow_unused=True, materialize_grads=True
    )
    return [out, *first, *second]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 3e-6)])
def test_kernel_equals_reference_in_all_derivatives(case, dtype, tolerance):
    irreps_in, irreps_out, correlation, channels = CASES[case]
    spec = ContractionSpec.build(irreps_in, irreps_out, correlation)
    inputs, species = _inputs(spec, channels, dtype=dtype)
    got = _derivatives(spec, inputs, species, "cpu")
    exact = [each.detach().double().requires_grad_() for each in inputs]
    want = _derivatives(spec, exact, species, "reference")
    for a, b in zip(got, want, strict=True):
        scale = b.detach().abs().max().clamp_min(1e-6)
        assert float((a.detach() - b.detach()).abs().max() / scale) <= tolerance


@pytest.mark.parametrize("name", ["cubic", "two-components"])
def test_equals_mace_torch(name):
    """The file is of mace-torch, with its own U matrices: tests/golden/make_mace.py."""
    golden = np.load(GOLDEN)
    case = json.loads(str(golden[f"{name}_case"]))
    spec = ContractionSpec.build(case["irreps_in"], case["irreps_out"], case["correlation"])
    x, weight, species, want = (
        torch.from_numpy(golden[f"{name}_{key}"]) for key in ("x", "weight", "species", "out")
    )
    got = symmetric_contraction(spec, x, weight, species, backend="cpu")
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", ["cubic", "quartic"])
def test_gradcheck_and_gradgradcheck(case):
    irreps_in, irreps_out, correlation, _ = CASES[case]
    spec = ContractionSpec.build(irreps_in, irreps_out, correlation)
    inputs, species = _inputs(spec, 2, num_nodes=3)

    def function(x, weight):
        return symmetric_contraction(spec, x, weight, species, backend="cpu")

    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("which", [[0], [1]])
def test_any_subset_of_inputs_may_require_gradients(which):
    spec = ContractionSpec.build("0e+1o", "0e+1o", 3)
    inputs, species = _inputs(spec, 4)
    want = torch.autograd.grad(
        symmetric_contraction(spec, *inputs, species).square().sum(), [inputs[i] for i in which]
    )
    inputs = [each.detach().requires_grad_(i in which) for i, each in enumerate(inputs)]
    got = torch.autograd.grad(
        symmetric_contraction(spec, *inputs, species).square().sum(), [inputs[i] for i in which]
    )
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), inversion=st.booleans())
def test_rotations_and_inversions(seed, inversion):
    irreps_in, irreps_out, correlation, channels = CASES["cubic"]
    spec = ContractionSpec.build(irreps_in, irreps_out, correlation)
    (x, weight), species = _inputs(spec, channels, num_nodes=4, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    angles = 3 * torch.rand(3, generator=generator, dtype=torch.float64)
    matrix = o3.angles_to_matrix(*angles) * (-1 if inversion else 1)
    turn_in, turn_out = (o3.Irreps(each).D_from_matrix(matrix) for each in (irreps_in, irreps_out))
    turned = torch.einsum("ij,njc->nic", turn_in, x)
    got = symmetric_contraction(spec, turned, weight, species)
    plain = symmetric_contraction(spec, x, weight, species)
    want = torch.einsum("ij,njc->nic", turn_out, plain)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6 * float(want.detach().abs().max()))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), num_nodes=st.integers(0, 20))
def test_order_of_nodes_does_not_matter(seed, num_nodes):
    spec = ContractionSpec.build("0e+1o", "0e+1o", 3)
    (x, weight), species = _inputs(spec, 9, num_nodes, dtype=torch.float32, seed=seed)
    order = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(seed))
    whole = symmetric_contraction(spec, x, weight, species)
    assert torch.equal(whole[order], symmetric_contraction(spec, x[order], weight, species[order]))


def test_bits_do_not_depend_on_threads():
    spec = ContractionSpec.build("0e+1o+2e", "0e+1o", 3)
    inputs, species = _inputs(spec, 40, 50, dtype=torch.float32)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(_derivatives(spec, inputs, species, "cpu"))
    torch.set_num_threads(1)
    for each in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], each, strict=True))


def test_nan_in_one_node_reaches_no_other():
    spec = ContractionSpec.build("0e+1o", "0e", 2)
    (x, weight), species = _inputs(spec, 4)
    x = x.detach()
    x[2] = float("nan")
    out = symmetric_contraction(spec, x, weight.detach(), species)
    assert out[2].isnan().all()
    assert out[torch.arange(13) != 2].isfinite().all()


def test_operators_pass_torch_opcheck():
    spec = ContractionSpec.build("0e+1o", "0e+1o", 2)
    inputs, _ = _inputs(spec, 4)
    ptr, order = torch.tensor([0, 6, 6, 13]), torch.arange(13)
    torch.library.opcheck(
        operators.forward.operator,
        (*inputs, ptr, order, spec.text),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_compile_sees_one_graph():
    spec = ContractionSpec.build("0e+1o", "0e+1o", 2)
    (x, weight), species = _inputs(spec, 4)

    def energy(x, weight):
        return symmetric_contraction(spec, x, weight, species).square().sum()

    want = torch.autograd.grad(energy(x, weight), (x, weight))
    compiled = torch.compile(energy, fullgraph=True, backend="aot_eager")
    got = torch.autograd.grad(compiled(x, weight), (x, weight))
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)


def test_paths_are_counted_as_in_mace():
    spec = ContractionSpec.build("64x0e + 64x1o + 64x2e + 64x3o", "64x0e + 64x1o", 3)
    assert [count for _, _, count in spec.blocks] == [1, 4, 23, 1, 6, 51]
    assert len(monomials(16, 3)) == 816


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("0e", "0e", 5), "correlation=5"),
        (("0e", "1x", 2), "irreps '1x': irrep '1x'"),
        (("0e+9o", "0e", 2), "irreps_in: irrep 9o"),
        (("0e", "", 2), "irreps_out: no irreps"),
    ],
)
def test_wrong_specs_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        ContractionSpec.build(*arguments)


def test_wrong_tensors_are_named():
    spec = ContractionSpec.build("0e+1o", "0e", 2)
    x, weight, species = torch.zeros(2, 4, 8), torch.zeros(3, 3, 8), torch.tensor([0, 2])
    with pytest.raises(DataError, match=r"expected x of shape \(N, 4, C\), got \(2, 5, 8\)"):
        symmetric_contraction(spec, torch.zeros(2, 5, 8), weight, species)
    with pytest.raises(DataError, match=r"expected weight of shape \(E, 3, 8\), got \(3, 3, 7\)"):
        symmetric_contraction(spec, x, weight[..., :7], species)
    with pytest.raises(DataError, match="species contains element 3"):
        symmetric_contraction(spec, x, weight, species + 1)
    with pytest.raises(DataError, match="expected species as an integer tensor"):
        symmetric_contraction(spec, x, weight, species.double())
    with pytest.raises(DataError, match=r"expected species of shape \(2,\)"):
        symmetric_contraction(spec, x, weight, species[:1])
