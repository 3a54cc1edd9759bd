"""Compiling and caching of generated C."""

import logging
import multiprocessing
import os

import pytest
import torch

from scitoolkit.core.errors import BackendError
from scitoolkit.ops.codegen import compile as compiling
from scitoolkit.ops.codegen import dispatch
from scitoolkit.ops.tensor_product import (
    Edges,
    TensorProductSpec,
    operators,
    tensor_product_convolution,
)

SOURCE = "int answer(void) { return 41 + 1; }"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCITOOLKIT_CACHE", str(tmp_path))
    return tmp_path


def answer(number: int) -> str:
    return f"int answer(void) {{ return {number}; }}"


def test_compiles_once_and_then_comes_from_the_cache(cache, monkeypatch):
    assert compiling.load_library(SOURCE).answer() == 42
    monkeypatch.setattr(compiling, "compile_source", lambda *a: pytest.fail("compiled again"))
    assert compiling.load_library(SOURCE).answer() == 42
    assert len(list(cache.rglob("*.so"))) == 1


def one_more_than(number: str) -> str:
    MADE.append(number)
    return f"int answer(void) {{ return {number} + 1; }}"


MADE: list[str] = []


def test_a_source_is_generated_once_for_its_arguments_and_generator(cache, monkeypatch):
    MADE.clear()
    for _ in range(2):
        assert compiling.load_generated(one_more_than, "41").answer() == 42
        assert compiling.load_generated(one_more_than, "6").answer() == 7
    assert MADE == ["41", "6"]
    monkeypatch.setattr(compiling, "_digest", lambda folder: "the generator was changed")
    assert compiling.load_generated(one_more_than, "6").answer() == 7
    assert MADE == ["41", "6", "6"]
    for note in cache.rglob("*.of"):
        note.write_text("0" * 64)  # a note without its library is compiled again
    assert compiling.load_generated(one_more_than, "6").answer() == 7
    assert MADE == ["41", "6", "6", "6"]


def test_source_flags_and_version_key_the_cache(cache, monkeypatch):
    for source, flags in ((SOURCE, ()), (SOURCE + " ", ()), (SOURCE, ("-O1",))):
        compiling.load_library(source, flags)
    monkeypatch.setattr(compiling, "CACHE_VERSION", compiling.CACHE_VERSION + 1)
    compiling.load_library(SOURCE, ())
    assert len(list(cache.rglob("*.of"))) == 4


def test_error_of_the_compiler_is_shown(cache):
    with pytest.raises(BackendError, match=r"could not compile a kernel: .*error"):
        compiling.load_library("int answer(void) { return }")
    assert not list(cache.rglob("*.so"))


def test_no_compiler_runs_the_reference_and_says_so_once(monkeypatch, caplog):
    monkeypatch.setenv("CC", "no-such-compiler")
    spec = TensorProductSpec.channelwise("7x0e", "0e", "0e")
    dispatch.refresh()
    edges = Edges.build(torch.tensor([0]), torch.tensor([1]), 2)
    arguments = (torch.ones(2, 7), torch.ones(1, 1), torch.ones(1, 7), edges)
    with caplog.at_level(logging.WARNING, "scitoolkit"):
        for _ in range(2):
            out = tensor_product_convolution(spec, *arguments)
    dispatch.refresh()
    assert out.sum() == 7
    assert [r.message.count("no C compiler found") for r in caplog.records] == [1]
    with pytest.raises(BackendError, match="no C compiler found"):
        tensor_product_convolution(spec, *arguments, backend="cpu")
    dispatch.refresh()


def _one_rank(queue):
    queue.put(compiling.load_library(SOURCE).answer())


@pytest.mark.multiproc
def test_many_processes_share_one_library(cache):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    ranks = [context.Process(target=_one_rank, args=(queue,)) for _ in range(3)]
    for rank in ranks:
        rank.start()
    answers = {queue.get(timeout=60) for _ in ranks}
    for rank in ranks:
        rank.join()
    assert answers == {42}
    assert len(list(cache.rglob("*.so"))) == 1


def test_modules_that_changed_while_running_share_nothing(tmp_path):
    (tmp_path / "generator.py").write_text("# of another version than what runs")
    changed = [compiling._digest.__wrapped__(tmp_path) for _ in range(2)]
    assert changed[0] != changed[1]
    os.utime(tmp_path / "generator.py", (0, 0))
    settled = [compiling._digest.__wrapped__(tmp_path) for _ in range(2)]
    assert settled[0] == settled[1]


def test_a_call_compiles_only_the_kernel_that_it_runs(cache, monkeypatch):
    compiled, original = [], compiling.compile_source
    monkeypatch.setattr(
        compiling, "compile_source", lambda *a: (compiled.append(a[1]), original(*a))[1]
    )
    spec = TensorProductSpec.channelwise("5x0e", "0e", "0e")
    edges = Edges.build(torch.tensor([0]), torch.tensor([1]), 2)
    arguments = (torch.ones(2, 5), torch.ones(1, 1), torch.ones(1, 5), edges)
    for accumulate, sums in ((None, "float"), (torch.float64, "double")):
        operators.kernel.cache_clear()
        dispatch.refresh()
        tensor_product_convolution(spec, *arguments, accumulate=accumulate)
        (source,) = compiled
        assert f"forward of (5x0e) x (1x0e) -> (5x0e), float, sums in {sums} " in source
        compiled.clear()
    operators.kernel.cache_clear()
    dispatch.refresh()
