"""Every shipped folder: a card, no package, right checksums, readable files, no machine paths."""

from __future__ import annotations

import glob
import importlib.util
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from scitoolkit import api
from scitoolkit.core.content import KINDS, content_root
from scitoolkit.core.dataset_card import verify

MAX_FILE, MAX_TOTAL = 5 * 10**6, 25 * 10**6
TEXT = {".md", ".yaml", ".yml", ".json", ".py", ".sh", ".txt", ".toml"}
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:home|root|work|Users|tmp|scratch|mnt)/\w")


def _folders(*kinds: str) -> list:
    roots = [content_root(kind) for kind in kinds]
    found = [p for r in roots if r.is_dir() for p in sorted(r.iterdir()) if p.is_dir()]
    return [pytest.param(p, id=f"{p.parent.name}/{p.name}") for p in found]


def _files(folder: Path) -> list[Path]:
    """Return what is shipped of a folder: all but what workflows write into it."""
    made = _generated()
    found = [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return [p for p in found if not any(p.is_relative_to(each) for each in made)]


@pytest.mark.parametrize("folder", _folders(*KINDS))
def test_a_folder_has_a_card_and_is_no_package(folder):
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# ")
    assert len(card.split()) > 80, "the card says next to nothing"
    assert not list(folder.rglob("__init__.py"))


@pytest.mark.parametrize("folder", _folders(*KINDS))
def test_files_are_small_and_name_no_machine(folder):
    for file in _files(folder):
        assert file.stat().st_size <= MAX_FILE, file
        if file.suffix in TEXT:
            assert not MACHINE_PATH.search(file.read_text(encoding="utf-8")), file


def test_all_content_together_is_small():
    total = sum(f.stat().st_size for k in KINDS for f in _files(content_root(k)))
    assert total < MAX_TOTAL


@pytest.mark.parametrize("folder", _folders("datasets"))
def test_a_dataset_is_what_its_card_says(folder):
    from scitoolkit.io.fields import open_fields

    card = verify(folder)
    assert card.name == folder.name
    for entry in card.files:
        if not entry.variables or not entry.shipped:
            continue
        with open_fields(folder / entry.path, list(entry.variables)) as dataset:
            for name, said in entry.variables.items():
                array = dataset[name]
                assert list(array.dims) == said.dims
                assert list(array.shape) == said.shape
                assert str(array.dtype) == said.dtype
                assert array.attrs["units"] == said.units


@pytest.mark.parametrize("folder", _folders("surrogates"))
def test_weights_can_be_loaded(folder):
    from safetensors import safe_open

    weights = sorted(folder.glob("*.safetensors"))
    assert weights
    for file in weights:
        with safe_open(file, framework="pt") as tensors:
            assert list(tensors.keys())


def _configurations() -> list:
    roots = [content_root(kind) for kind in ("workflows", "surrogates")]
    found = [p for r in roots if r.is_dir() for p in sorted(r.glob("*/*.yaml"))]
    return [pytest.param(p, id=f"{p.parent.name}/{p.name}") for p in found]


@pytest.mark.parametrize("path", _configurations())
def test_a_configuration_is_valid(path):
    check_configuration(path)


def check_configuration(path: Path) -> None:
    """Check one YAML file against its job's schema, and that its data is shipped."""
    _, config = api.load(path)
    if config.domain == "search":
        return check_configuration(config.config)
    if config.domain == "generate" or getattr(config.data, "generator", None):
        return None  # it makes its data
    named = _paths(config.data.model_dump())
    assert named
    for each in named:
        # A file that a workflow makes is not shipped.
        assert glob.glob(str(each)) or each.parent in _generated(), each


@cache
def _generated() -> list[Path]:
    """Return the folders of the campaigns that the workflows make outside their runs."""
    loaded = [api.load(p.values[0])[1] for p in _configurations()]
    return [c.output for c in loaded if c.domain == "generate" and c.output]


def _paths(value: object) -> list[Path]:
    if isinstance(value, Path):
        return [value]
    inner = value.values() if isinstance(value, dict) else value
    return [p for v in inner for p in _paths(v)] if isinstance(value, (dict, list)) else []


def test_the_script_makes_the_shipped_delay_ring(monkeypatch):
    from scitoolkit.io.fields import open_fields

    folder = content_root("datasets") / "mackey_glass"
    spec = importlib.util.spec_from_file_location("delay_ring", folder / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FRAMES", 30)
    with open_fields(folder / "mackey_glass_8x2500.nc", "u") as shipped:
        made = module.states().astype("float32")
        assert (made == shipped["u"].values[:30]).all()


def test_the_generator_checks_the_shipped_file(tmp_path):
    from scitoolkit.core.errors import DataError
    from scitoolkit.io.fields import open_fields

    folder = content_root("datasets") / "ersst_v5"
    spec = importlib.util.spec_from_file_location("generate_ersst", folder / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    remade = module.subset(folder / module.NAME, tmp_path)
    with (
        open_fields(folder / module.NAME, "sst") as shipped,
        open_fields(remade, "sst", units={"sst": "degC"}) as again,
    ):
        module.check(shipped["sst"], "shipped")
        assert again["sst"].equals(shipped["sst"])
        with pytest.raises(DataError, match="extent"):
            module.check(shipped["sst"][1:], "cut")


def _rayleigh_benard():
    folder = content_root("datasets") / "rayleigh_benard"
    spec = importlib.util.spec_from_file_location("generate_rb", folder / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return folder, module


def test_the_flow_obeys_what_holds_for_each_frame():
    folder, module = _rayleigh_benard()
    for file in sorted(folder.glob("*.h5")):
        found = module.check(file)
        assert found["divergence"] < 1e-3
        assert found["walls"] < 0.02
        assert found["pressure"] < 1e-3


def test_the_check_of_the_flow_sees_swapped_axes(tmp_path):
    import h5py

    folder, module = _rayleigh_benard()
    with h5py.File(folder / "rb2d_ra1e6_pr1_s43_t20-23.75.h5") as file:
        state = {name: file[name][0] for name in module.NAMES}
        scales = {name: file[name][:] for name in "xz"}
    state["u"], state["w"] = state["w"], state["u"]
    path = module.write(tmp_path / "swapped.h5", [state | scales], [20.0], {})
    assert module.check(path)["divergence"] > 0.5


def test_two_files_of_one_flow_are_read_as_one():
    from scitoolkit.io.fields import open_fields

    folder, _ = _rayleigh_benard()
    with open_fields(folder / "rb2d_ra1e6_pr1_s42_*.h5", ["b", "u"]) as flow:
        assert flow.sizes["t"] == 40
        assert (abs(flow["t"].diff("t") - 0.25) < 1e-12).all()
