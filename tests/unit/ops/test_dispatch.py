"""Backend selection, and backends that other packages bring."""

import logging
import subprocess
import sys

import pytest
import torch

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.ops.codegen import KernelBackend, dispatch, kernel_backends, operations
from scitoolkit.ops.radial import radial_basis
from scitoolkit.testing.kernels import KernelContract

REFERENCE = operations.get("radial_basis").reference


class Doubled(KernelBackend):
    """A backend in one file: plain torch, in float64 inside."""

    name, devices, dtypes, priority = "doubled", ("cpu",), (torch.float32,), 50
    broken = ""

    @classmethod
    def refuses_device(cls, device):
        return cls.broken or super().refuses_device(device)


@Doubled.serve("radial_basis", transforms=True)
def _radial_basis(distances, spec):
    return REFERENCE(distances.double(), spec).float()


@pytest.fixture
def doubled(monkeypatch):
    kernel_backends.register("doubled")(Doubled)
    dispatch.refresh()
    yield Doubled
    kernel_backends.unregister("doubled")
    dispatch.refresh()


def test_the_backend_of_highest_priority_that_can_run_is_taken(doubled, monkeypatch):
    operation = operations.get("radial_basis")
    assert operation.backend("", torch.zeros(1)) == "doubled"
    distances = torch.linspace(0.1, 4, 9)
    assert radial_basis(distances, 5.0).equal(radial_basis(distances, 5.0, backend="doubled"))
    exact = radial_basis(distances.double(), 5.0)  # not one of its dtypes
    assert exact.dtype == torch.float64


def test_a_backend_that_cannot_run_is_passed_over_or_an_error(doubled, monkeypatch):
    monkeypatch.setattr(Doubled, "broken", "the accelerator is on fire")
    assert operations.get("spmm").backend("3", torch.zeros(1)) == "cpu"
    with pytest.raises(BackendError, match="on fire"):
        radial_basis(torch.ones(2), 5.0, backend="doubled")


def test_an_unknown_backend_is_an_error_with_the_allowed_ones():
    with pytest.raises(
        ConfigError, match=r"'tritn'.*Allowed: auto, cpu, reference, triton.*triton"
    ):
        radial_basis(torch.ones(2), 5.0, backend="tritn")


def test_the_reference_is_taken_with_one_warning(caplog):
    dispatch.refresh()
    with caplog.at_level(logging.WARNING, "scitoolkit"):
        for _ in range(2):
            radial_basis(torch.ones(2, dtype=torch.float16), 5.0)
    assert [record.message for record in caplog.records] == [
        "radial_basis: the slow reference runs: there is no kernel for torch.float16"
    ]


class TestContractOfAPlugIn(KernelContract):
    backend = Doubled

    @pytest.fixture(autouse=True)
    def _installed(self, doubled):
        """Install the backend for each test."""

    def test_derivatives_beyond_the_kernels_are_refused_by_name(self, operation):
        """This backend can be differentiated any number of times."""


def test_operations_are_constants_of_a_traced_graph_without_the_compiler_in_memory():
    marked = torch.compiler.assume_constant_result(lambda: 0)
    assert vars(marked)
    assert vars(marked).items() <= vars(vars(dispatch)["_name"]).items()
    code = "import sys, scitoolkit.ops.spmm; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
