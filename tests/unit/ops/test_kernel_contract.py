"""Our kernels run the contract suite that anybody's backend inherits."""

from scitoolkit.testing.kernels import KernelContract


class TestGeneratedC(KernelContract):
    backend = "cpu"
    namespace = "scitoolkit."
