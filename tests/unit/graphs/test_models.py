"""Our graph models pass the contract suite, at several numbers of layers."""

import pytest

pytest.importorskip("torch_geometric", exc_type=ImportError)

from scitoolkit.graphs.models import models
from scitoolkit.testing import GraphModelContract

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


class TestModels(GraphModelContract):
    @pytest.fixture(params=models.names())
    def model(self, request):
        return models.get(request.param)(name=request.param, hidden=8)


class TestDepth(GraphModelContract):
    @pytest.fixture(params=[1, 3])
    def model(self, request):
        return models.get("gat")(hidden=8, layers=request.param)
