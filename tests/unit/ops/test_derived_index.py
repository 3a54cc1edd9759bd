"""Index tensors derived from others, held as long as these exist: on a pretended GPU."""

from __future__ import annotations

import gc

import pytest
import torch

from scitoolkit.ops.codegen import DerivedIndex


@pytest.fixture
def pretended(monkeypatch):
    """Tensors that say they are on a GPU; the function's calls are counted."""
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    calls = []

    def doubled(index, factor):
        calls.append(factor)
        return index * factor

    return DerivedIndex(doubled), calls


def test_is_computed_once_for_a_tensor_and_sizes(pretended):
    function, calls = pretended
    index, other = torch.arange(3), torch.arange(3)
    for _ in range(3):
        assert function(index, 2).tolist() == [0, 2, 4]
    assert calls == [2]
    function(index, 3)
    function(other, 3)
    assert calls == [2, 3, 3]


def test_follows_changes_of_the_contents(pretended):
    function, calls = pretended
    index = torch.arange(3)
    function(index, 2)
    index += 1
    assert function(index, 2).tolist() == [2, 4, 6]
    assert calls == [2, 2]


def test_is_freed_with_the_tensor(pretended):
    function, _ = pretended
    index = torch.arange(3)
    function(index, 2)
    assert len(function._results) == 1
    del index
    gc.collect()
    assert len(function._results) == 0


def test_nothing_is_held_for_memory_that_numpy_may_change():
    calls = []
    function = DerivedIndex(lambda index: calls.append(0) or index.sum())
    values = torch.arange(3).numpy()
    index = torch.from_numpy(values)
    assert int(function(index)) == 3
    values += 1
    assert int(function(index)) == 6
    assert len(calls) == 2


def test_tensors_of_inference_mode_have_no_versions(pretended):
    function, calls = pretended
    with torch.inference_mode():
        index = torch.arange(3)
        function(index, 2)
        index += 1
        assert function(index, 2).tolist() == [2, 4, 6]
    assert calls == [2, 2]
