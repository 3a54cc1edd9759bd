"""Contract suite of generators, to inherit in tests.

Example:
    class TestMyGenerator(GeneratorContract):
        @pytest.fixture
        def generator(self):
            return MyGenerator(cells=16)
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.generators.base import Generator, Sample, generators
from scitoolkit.testing.member import check_registered, check_settings


class GeneratorContract:
    """Contract suite of generators; override the fixture `generator` with a small case."""

    @pytest.fixture
    def generator(self) -> Generator:
        """Return the generator under test, small enough to run in about a second."""
        raise NotImplementedError("override the fixture `generator`")

    @pytest.fixture
    def made(self, generator: Generator) -> Sample:
        """Return the sample of seed 3."""
        return generator.sample({}, 3)

    def test_registered_under_its_name(self, generator: Generator) -> None:
        """The registry returns this class, which states equations, scheme and reference."""
        check_registered(generators, generator)
        assert generator.equations_line()
        assert generator.scheme
        assert generator.reference

    def test_parameters_are_fields_with_units(self, generator: Generator) -> None:
        """Every parameter that can be sampled is a float field with a unit."""
        for key, unit in generator.parameters.items():
            assert isinstance(generator.value_of(key), float)
            assert unit
        with pytest.raises(ConfigError, match="no_such"):
            generator.sample({"no_such": 1.0}, 0)

    def test_parameters_out_of_validity_are_refused(self, generator: Generator) -> None:
        """NaN is refused for every parameter."""
        for key in generator.parameters:
            with pytest.raises(ConfigError):
                generator.with_parameters({key: math.nan})

    def test_settings(self, generator: Generator) -> None:
        """Unknown keys are refused; a worker process receives an equal generator."""
        check_settings(generator)

    def test_invariants_are_within_their_bounds(self, generator: Generator, made: Sample) -> None:
        """Each invariant has a bound, and its drift is below it."""
        bounds = generator.invariant_bounds()
        assert set(made.invariants) == set(bounds)
        for name, drift in made.invariants.items():
            assert 0 <= drift <= bounds[name], name

    def test_the_error_is_measured_and_marks_the_sample(
        self, generator: Generator, made: Sample
    ) -> None:
        """A sample states its error; it is marked if it is above the tolerance."""
        assert made.accuracy is not None
        assert made.accuracy.error >= 0
        smallest = sys.float_info.min  # of an exact solution
        strict = generator.model_copy(update={"tolerance": max(made.accuracy.error / 2, smallest)})
        loose = generator.model_copy(update={"tolerance": max(made.accuracy.error * 2, smallest)})
        for other, expected in ((strict, made.accuracy.error > 0), (loose, False)):
            again = other.sample({}, 3)
            assert again.accuracy is not None
            assert again.accuracy.error == made.accuracy.error
            assert sum(again.accuracy.text == text for text in again.missed) == expected

    def test_known_values_are_found(self, generator: Generator, made: Sample) -> None:
        """Every quantity with an exact value is within its tolerance."""
        for check in generator.checks(made.frames):
            assert check.holds, check

    def test_equal_seeds_give_equal_bits(self, generator: Generator, made: Sample) -> None:
        """Equal seeds give equal frames; different seeds differ if the generator is random."""
        assert same_frames(made.frames, generator.sample({}, 3).frames)
        assert same_frames(made.frames, generator.sample({}, 4).frames) != generator.random

    def test_frames_are_finite_and_have_units(self, generator: Generator, made: Sample) -> None:
        """Fields have a time dim, and a unit on every variable and coordinate."""
        if generator.suffix != ".nc":
            return
        frames: Any = made.frames
        assert "time" in frames.dims
        for name in [*frames.data_vars, *frames.coords]:
            assert np.isfinite(frames[name].values).all(), name
            assert frames[name].attrs.get("units"), name

    def test_a_file_gives_frames_and_origin_back(
        self, generator: Generator, made: Sample, tmp_path: Path
    ) -> None:
        """Frames are restored bit for bit, with the settings needed to regenerate them."""
        origin = generator.origin(made, 3, {})
        path = tmp_path / f"sample{generator.suffix}"
        generator.write(made, origin, path)
        frames, parameters = generator.read(path)
        assert parameters == origin
        assert same_frames(frames, made.frames)

    def test_figures_can_be_drawn(self, generator: Generator, made: Sample) -> None:
        """Figures are plain data that survive JSON."""
        for figure in generator.figures(made.frames):
            assert figure.model_validate_json(figure.model_dump_json()) == figure


def same_frames(a: Any, b: Any) -> bool:
    """Return whether two samples' frames are equal, bit for bit."""
    if hasattr(a, "equals"):
        return bool(a.equals(b))
    return len(a) == len(b) and all(
        np.array_equal(x.positions, y.positions)
        and np.array_equal(x.cell.array, y.cell.array)
        and np.array_equal(x.get_forces(), y.get_forces())
        and x.get_potential_energy() == y.get_potential_energy()
        for x, y in zip(a, b, strict=True)
    )
