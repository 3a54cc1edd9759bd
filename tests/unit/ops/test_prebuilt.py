"""Prebuilt kernels are used only if kernels cannot be compiled."""

import importlib.util
import logging
from pathlib import Path

import pytest
import torch

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.ops.codegen import compile as compiling
from scitoolkit.ops.codegen import dispatch, prebuilt
from scitoolkit.ops.codegen.backends import GeneratedC, Reference
from scitoolkit.ops.tensor_product import TensorProductSpec, operators
from scitoolkit.ops.tensor_product.public import OPERATION

ROOT = Path(__file__).parents[3]
SOURCE = "int answer(void) { return 41 + 1; }"
THREADS = """
extern int omp_get_thread_num(void);
long threads(long wanted) {
  long most = 0;
  #pragma omp parallel for num_threads(wanted) reduction(max: most) schedule(static, 1)
  for (long i = 0; i < wanted; i++) most = omp_get_thread_num();
  return most + 1;
}
"""
FLAGS = compiling.FLAGS


@pytest.fixture
def store(tmp_path, monkeypatch):
    """An empty store and an empty cache; requested sources are written to `sources`."""
    monkeypatch.delenv(compiling.CFLAGS, raising=False)
    monkeypatch.setenv("SCITOOLKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(prebuilt.SOURCES, str(tmp_path / "sources"))
    monkeypatch.setattr(prebuilt, "PREBUILT", tmp_path / "prebuilt")
    operators.kernel.cache_clear()
    dispatch.refresh()
    yield tmp_path
    operators.kernel.cache_clear()
    dispatch.refresh()


@pytest.fixture
def no_compiler(monkeypatch):
    return lambda: monkeypatch.setenv("CC", "no-such-compiler")


def build(source: str, flags: tuple[str, ...] = FLAGS, level: str = "") -> bytes:
    level = level or prebuilt.usable_levels()[-1]
    portable = (f"-march={level}", *(f for f in flags if not f.startswith("-march")))
    library = compiling.compile_portable(compiling.find_compiler(), source, portable)
    path = prebuilt.PREBUILT / level / f"{prebuilt.digest(source, flags)}.so"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(library)
    prebuilt.write_digests()
    return library


def answer(number: str) -> str:
    return f"int answer(void) {{ return {number}; }}"


def test_a_prebuilt_library_runs_only_where_nothing_compiles(store, no_compiler, caplog):
    build(SOURCE)
    build(answer("7"))
    assert not compiling.is_prebuilt(compiling.load_library(SOURCE))
    no_compiler()
    compiling._report_prebuilt.cache_clear()
    with caplog.at_level(logging.INFO, "scitoolkit"):
        for library in (
            compiling.load_library(SOURCE),
            compiling.load_generated(answer, "7"),
        ):
            assert compiling.is_prebuilt(library)
            assert library.answer() in (42, 7)
    assert ["no C compiler found" in r.message for r in caplog.records] == [True]
    assert GeneratedC.unavailable() == ""


def test_a_compiler_that_fails_is_none(store, monkeypatch):
    build(SOURCE)
    monkeypatch.setenv("CC", "false")
    assert compiling.is_prebuilt(compiling.load_library(SOURCE))


FLAGGED = "#ifndef FLAG\n#define FLAG 0\n#endif\nint answer(void) { return FLAG; }"


def test_flags_of_the_user_are_compiled_though_a_prebuilt_library_exists(store, monkeypatch):
    build(FLAGGED)
    monkeypatch.setenv(compiling.CFLAGS, "-DFLAG=3")
    for _ in range(2):  # compiled, then from the cache
        library = compiling.load_library(FLAGGED)
        assert not compiling.is_prebuilt(library)
        assert library.answer() == 3


@pytest.mark.parametrize(
    ("compiler", "flags", "reason"),
    [("no-such-compiler", "-DFLAG=3", "no C compiler found"), ("", "-fno-such-flag", "fno-such")],
)
def test_ignored_flags_of_the_user_are_warned_of_once(
    store, monkeypatch, caplog, compiler, flags, reason
):
    build(FLAGGED)
    monkeypatch.setenv(compiling.CFLAGS, flags)
    monkeypatch.setenv("CC", compiler)
    compiling._report_prebuilt.cache_clear()
    with caplog.at_level(logging.INFO, "scitoolkit"):
        for _ in range(2):
            assert compiling.load_library(FLAGGED).answer() == 0
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"SCITOOLKIT_CFLAGS={flags} is ignored" in record.message
    assert reason in record.message


@pytest.mark.parametrize("variable", ["CC", compiling.CFLAGS])
def test_an_unclosed_quotation_names_its_variable(store, monkeypatch, variable):
    monkeypatch.setenv(variable, "gcc -D'FLAG")
    with pytest.raises(ConfigError, match=rf"\${variable} .* No closing quotation"):
        compiling.load_library(FLAGGED)


def test_what_is_not_prebuilt_is_refused(store, no_compiler):
    build(SOURCE)
    no_compiler()
    for source, flags in ((SOURCE + " ", FLAGS), (SOURCE, ("-O1",))):
        with pytest.raises(BackendError, match="no C compiler found"):
            compiling.load_library(source, flags)


def test_a_library_shares_torchs_threads(store, no_compiler):
    assert b"libgomp" not in build(THREADS)
    no_compiler()
    library = compiling.load_library(THREADS)
    assert library.threads(3) == 3
    runtimes = [path for path in prebuilt._loaded() if "libgomp" in path]
    assert any("torch" in path for path in runtimes) or not runtimes


def test_the_best_level_of_the_processor_is_taken(store, no_compiler, monkeypatch):
    levels = {"better": frozenset({"avx9"}), "plain": frozenset()}
    monkeypatch.setattr(prebuilt, "levels", lambda: levels)
    for level in levels:
        path = prebuilt.PREBUILT / level / f"{prebuilt.digest(SOURCE, FLAGS)}.so"
        path.parent.mkdir(parents=True)
        path.touch()
    prebuilt.write_digests()
    for flags, level in (({"avx9"}, "better"), (set(), "plain")):
        monkeypatch.setattr(prebuilt, "_processor_flags", lambda flags=flags: frozenset(flags))
        prebuilt.usable_levels.cache_clear()
        assert prebuilt.find(SOURCE, FLAGS).parent.name == level
        assert prebuilt.num_usable() == 1
    prebuilt.usable_levels.cache_clear()


def test_a_forward_kernel_alone_is_not_enough(store, no_compiler, monkeypatch):
    spec, like = TensorProductSpec.channelwise("3x0e", "0e", "0e").text, torch.zeros(1)
    for name in ("forward", "backward", "double_backward"):
        operators.kernel(spec, name, torch.float32)
    notes = [prebuilt.read_note(path) for path in (store / "sources").glob("*.c")]
    for note in notes:
        build(*note)
    (double,) = (note for note in notes if "void double_backward(" in note[0])
    needed = prebuilt.find(*double)
    no_compiler()
    monkeypatch.setenv("SCITOOLKIT_CACHE", str(store / "other"))
    for there, backend in ((False, Reference), (True, GeneratedC)):
        needed.rename(needed.with_suffix(".so" if there else ".away"))
        needed = needed.with_suffix(".so" if there else ".away")
        operators.kernel.cache_clear()
        dispatch.refresh()
        assert OPERATION.backend(spec, like) == backend.name


def packed(folder, **changes):
    """Put the libraries of a store into the archive of a wheel; `changes` adds members by name."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, data in changes.items():
        (folder / name).write_bytes(data)
    files = sorted(p for p in folder.rglob("*") if p.suffix == ".so")
    target = module.archive(files, folder, folder / prebuilt.ARCHIVE)
    for file in files:
        file.unlink()
    return target


def test_the_archive_of_a_wheel_is_unpacked_once_beside_the_cache(store, no_compiler):
    library = build(SOURCE)
    archive = packed(prebuilt.PREBUILT).read_bytes()
    no_compiler()
    loaded = compiling.load_library(SOURCE)
    assert loaded.answer() == 42
    assert compiling.is_prebuilt(loaded)
    assert prebuilt.num_usable() == 1
    path = prebuilt.find(SOURCE, FLAGS)
    assert path.read_bytes() == library
    assert path.is_relative_to(store / "cache" / "prebuilt")
    assert path.parents[1].stat().st_mode & 0o777 == 0o700
    # The same files make the same archive, and what is unpacked is not written again.
    before = path.stat().st_ino
    (prebuilt.PREBUILT / path.parent.name / path.name).write_bytes(library)
    (prebuilt.PREBUILT / prebuilt.ARCHIVE).unlink()
    assert packed(prebuilt.PREBUILT).read_bytes() == archive
    prebuilt._unpacked.cache_clear()
    assert prebuilt.find(SOURCE, FLAGS).stat().st_ino == before


def test_a_cache_that_others_may_write_is_passed_over(store, no_compiler, monkeypatch):
    build(SOURCE)
    packed(prebuilt.PREBUILT)
    monkeypatch.setattr(prebuilt, "fallback_directory", lambda: store / "own" / "kernels")
    shared = store / "cache" / "prebuilt"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    assert prebuilt.find(SOURCE, FLAGS).is_relative_to(store / "own")
    prebuilt._unpacked.cache_clear()
    (store / "own" / "prebuilt").chmod(0o777)
    with pytest.raises(BackendError, match="others may write it"):
        prebuilt.find(SOURCE, FLAGS)


@pytest.mark.parametrize("kind", ["name", "cut", "text"])
def test_a_damaged_archive_is_refused_and_leaves_nothing(store, kind):
    build(SOURCE)
    archive = packed(prebuilt.PREBUILT, **({"other.so": b"x"} if kind == "name" else {}))
    data = archive.read_bytes()
    archive.write_bytes({"name": data, "cut": data[: len(data) // 2], "text": b"text"}[kind])
    with pytest.raises(BackendError, match="damaged archive of prebuilt kernels"):
        prebuilt.find(SOURCE, FLAGS)
    assert not list((store / "cache" / "prebuilt").iterdir())


def test_with_a_damaged_archive_and_no_compiler_other_backends_are_left(store, no_compiler):
    prebuilt.PREBUILT.mkdir()
    (prebuilt.PREBUILT / prebuilt.ARCHIVE).write_bytes(b"text")
    no_compiler()
    assert "damaged archive" in GeneratedC.unavailable()
    spec = TensorProductSpec.channelwise("3x0e", "0e", "0e").text
    assert OPERATION.backend(spec, torch.zeros(1)) == Reference.name


def test_a_library_whose_bytes_have_changed_is_not_loaded(store, no_compiler, monkeypatch):
    library = build(SOURCE)
    (path,) = prebuilt.PREBUILT.glob("*/*.so")
    packed(prebuilt.PREBUILT)
    no_compiler()
    unpacked = prebuilt.find(SOURCE, FLAGS)
    assert unpacked.read_bytes() == library
    for damaged in (library[:-1], library[:-1] + b"x", b""):
        unpacked.write_bytes(damaged)
        with pytest.raises(BackendError, match=r"a prebuilt kernel is damaged.*rm -r "):
            compiling.load_library(SOURCE)
    (prebuilt.PREBUILT / prebuilt.ARCHIVE).unlink()
    path.write_bytes(library)
    assert compiling.load_library(SOURCE).answer() == 42
    (prebuilt.PREBUILT / prebuilt.DIGESTS).unlink()
    with pytest.raises(BackendError, match=r"a prebuilt kernel is damaged.*force-reinstall"):
        compiling.load_library(SOURCE)
