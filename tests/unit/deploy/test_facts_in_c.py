"""Facts of the training data in exported code: compared from C and Fortran."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess

import numpy as np
import pytest
from torch import nn

from scitoolkit.core.data_facts import DataFacts, Dim, Step
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.export import export
from scitoolkit.deploy.interface import STATUSES

STRANGE = 'K "*/'
ODD = "a\n\x07\x1b\u2028\\??/µ\x7f9"
"""Control characters, a trigraph, and a digit behind an escape."""


def even(number, unit):
    return Step(number, unit, number, number)


def column(units="K", facts=None):
    inputs = [ArraySpec("T", ("lat", "level"), (2, 3), units)]
    outputs = [ArraySpec("rate", ("lat", "level"), (2, 3), STRANGE)]
    return TracedFunction(nn.Linear(3, 3), inputs, outputs, facts=facts)


FACTS = DataFacts(
    dims=(
        Dim("time", "time", 9, "dates", step=even(21600.0, "s"), direction=1),
        Dim("lat", "latitude", 2, "numbers", "", "", -1, even(2.5, "degrees_north")),
        Dim("level", "vertical", 3, "numbers", "Pa", "", 1, Step(1e4, "Pa", 5e3, 2e4)),
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("facts")
    export([column(facts=FACTS)], folder / "m.so")
    export([column()], folder / "plain.so")
    return folder


ARRAYS = [
    (("T", "lat,level", "K"), "OK"),
    (("T", "level,lat", "K"), "FACTS"),
    (("T", "lat,level", "degC"), "FACTS"),
    (("T", "lat,level", ""), "FACTS"),
    (("rate", "lat,level", STRANGE), "OK"),
    (("Tx", "lat,level", "K"), "UNSTATED"),
    (("", "lat,level", "K"), "UNSTATED"),
]
DIMS = [
    (("time", 21600.0, "s"), "OK"),
    (("time", 21500.0, "s"), "OK"),
    (("time", 3600.0, "s"), "FACTS"),
    (("time", 6.0, "h"), "FACTS"),
    (("time", float("nan"), "s"), "FACTS"),
    (("time", float("inf"), "s"), "FACTS"),
    (("lat", -2.5, "degrees_north"), "OK"),
    (("lat", 2.5, "degrees_north"), "FACTS"),
    (("level", 1e4, "Pa"), "UNSTATED"),
    (("x", 1.0, ""), "UNSTATED"),
]


def test_a_caller_is_told_what_differs(folder):
    library = ctypes.CDLL(str(folder / "m.so"))
    library.m_compare_dim.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p]
    for (array, dims, units), status in ARRAYS:
        told = library.m_compare_array(array.encode(), dims.encode(), units.encode())
        assert told == STATUSES[status], (array, dims, units)
    for (dim, step, units), status in DIMS:
        assert library.m_compare_dim(dim.encode(), step, units.encode()) == STATUSES[status], dim
    assert "dim time: step 21600 s" in (folder / "m.h").read_text()


def test_numpy_scalars_and_characters_that_c_has_no_escape_for(tmp_path):
    step = even(np.float32(2.5), ODD)
    facts = DataFacts(dims=(Dim("lat", "latitude", 2, "numbers", "", "", np.int8(-1), step),))
    export([column(units=ODD, facts=facts)], tmp_path / "odd.c")
    for flags in (["-std=c99"], ["-std=gnu11"]):
        command = ["gcc", *flags, "-O1", "-w", "-shared", "-fPIC", "odd.c", "-o", flags[0], "-lm"]
        subprocess.run(command, cwd=tmp_path, check=True)
        library = ctypes.CDLL(str(tmp_path / flags[0]))
        library.odd_compare_dim.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p]
        library.odd_about.restype = ctypes.c_char_p
        about = json.loads(library.odd_about())
        assert about["functions"][0]["inputs"][0]["units"] == ODD
        for units, status in ((ODD, "OK"), (ODD.replace("\n", ""), "FACTS")):
            assert library.odd_compare_array(b"T", b"lat,level", units.encode()) == STATUSES[status]
            assert library.odd_compare_dim(b"lat", -2.5, units.encode()) == STATUSES[status]


def test_a_text_with_a_nul_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="NUL"):
        export([column(units="K\0m")], tmp_path / "m.so")
    assert list(tmp_path.iterdir()) == []


def test_without_facts_no_step_is_stated(folder):
    library = ctypes.CDLL(str(folder / "plain.so"))
    library.plain_compare_dim.argtypes = [ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p]
    assert library.plain_compare_dim(b"time", 1.0, b"s") == STATUSES["UNSTATED"]
    assert library.plain_compare_array(b"T", b"lat,level", b"K") == STATUSES["OK"]


@pytest.mark.skipif(shutil.which("gfortran") is None, reason="needs gfortran")
def test_from_fortran_and_strict_c(folder):
    text = json.dumps(STRANGE)
    (folder / "caller.c").write_text(
        '#include "m.h"\n#include <stdio.h>\nint main(void) { printf("%d %d\\n", '
        f'm_compare_array("rate", "lat,level", {text}), m_compare_dim("time", 6, "h"));'
        " return 0; }"
    )
    (folder / "caller.f90").write_text(
        """program caller
  use m_module
  use, intrinsic :: iso_c_binding
  print '(i0,1x,i0)', m_compare_array("T"//c_null_char, "lat,level"//c_null_char, &
      "K"//c_null_char), m_compare_dim("lat"//c_null_char, 2.5_c_double, &
      "degrees_north"//c_null_char)
end program
"""
    )
    strict = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "caller.c"]
    fortran = ["gfortran", "-std=f2018", "m.f90", "caller.f90"]
    for command, printed in ((strict, "0 8"), (fortran, "0 8")):
        subprocess.run([*command, "./m.so", "-o", "caller"], cwd=folder, check=True)
        made = subprocess.run(["./caller"], cwd=folder, check=True, capture_output=True, text=True)
        assert made.stdout.strip() == printed
