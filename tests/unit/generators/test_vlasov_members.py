from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.generators.vlasov import dispersion
from scitoolkit.generators.vlasov.anisotropy import Anisotropy, anisotropy
from scitoolkit.generators.vlasov.dispersion import Beam, ion_acoustic, least_damped, root
from scitoolkit.generators.vlasov.members import BumpOnTail, IonAcoustic, Landau, Sheath, TwoStream
from scitoolkit.testing import GeneratorContract

SMALL = {"cells_x": 8, "cells_v": 64, "frames": 3}


class TestLandau(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return Landau(**SMALL)


class TestTwoStream(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return TwoStream(**{**SMALL, "cells_x": 16}, amplitude=1e-6, duration=65.0)


class TestBumpOnTail(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return BumpOnTail(**SMALL, duration=5.0)


class TestIonAcoustic(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return IonAcoustic(cells_v=96, frames=3, duration=75.0, wavenumber=0.8)


class TestSheath(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return Sheath(cells_x=16, cells_v=32, frames=3, duration=5.0, size=16.0)


class TestAnisotropy(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return Anisotropy(cells_x=4, cells_v=32, cells_vy=8, degree=1, frames=4, duration=3.0)


def test_collisions_make_two_temperatures_equal_at_their_frequency():
    two = Anisotropy(cells_x=4, cells_v=32, cells_vy=10, duration=3.0, frames=4)
    frames = two.sample({"collision_frequency": 0.7}, 0).frames
    assert frames["f"].dims == ("time", "x", "vy", "v")
    assert anisotropy(frames)[0] == pytest.approx(1.2**2 - 0.8**2, rel=1e-4)
    found = two.relaxation_rate(frames)
    assert found == pytest.approx(0.7, rel=1e-4)
    (total,) = {float(v) for v in (frames["n"] * (frames["T"] + frames["Ty"])).mean("x").round(4)}
    assert total == pytest.approx(1.2**2 + 0.8**2, rel=1e-3)  # the wave takes its share


def test_without_collisions_the_wave_of_two_temperatures_is_damped_as_the_root_says():
    two = Anisotropy(collision_frequency=0.0, thermal=1.0, thermal_y=0.6, duration=15.0, frames=2)
    assert two.exact_root() == Landau().exact_root()
    rate, frequency = two.checks(two.generate(0).frames)
    assert rate.quantity == "damping rate"
    assert rate.holds
    assert frequency.holds


def test_no_rate_is_told_of_temperatures_that_are_equal_or_driven_by_the_wave():
    for settings in ({"thermal": 1.0, "thermal_y": 1.0}, {"amplitude": 0.3}):
        two = Anisotropy(
            cells_x=4, cells_v=32, cells_vy=8, degree=1, duration=0.5, frames=2, **settings
        )
        assert not two.checks(two.generate(0).frames)


def test_hot_electrons_need_a_larger_box_of_velocities():
    with pytest.raises(ConfigError, match=r"v_max 4: particles reach 5"):
        Anisotropy(v_max=4.0, thermal_y=2.5)


def test_landau_damping_is_that_of_the_root():
    landau = Landau(duration=25.0, frames=2)
    frames = landau.generate(0).frames
    assert landau.exact_root().imag == pytest.approx(-0.153359, abs=1e-6)
    assert landau.measured_rate(frames) == pytest.approx(-0.153359, abs=1e-4)


def test_two_streams_grow_as_the_root_says():
    streams = TwoStream(frames=2, cells_x=16, cells_v=64)
    assert streams.exact_root().imag == pytest.approx(0.28451, abs=1e-5)
    found = streams.measured_rate(streams.generate(0).frames)
    assert found == pytest.approx(0.28451, rel=1e-3)


def test_a_bump_on_the_tail_grows_as_the_root_says():
    bump = BumpOnTail(frames=2, duration=80.0)
    (check,) = bump.checks(bump.generate(0).frames)
    assert check.measured == pytest.approx(check.exact, rel=5e-3)


@pytest.mark.parametrize(
    "settings",
    [{}, {"ion_temperature": 0.3, "wavenumber": 0.7}, {"mass_ratio": 36.0, "duration": 160.0}],
)
def test_an_ion_acoustic_wave_is_damped_as_the_root_says(settings):
    wave = IonAcoustic(frames=2, **settings)
    rate, frequency = wave.checks(wave.sample({}, 0).frames)
    assert rate.quantity == "damping rate"
    assert rate.measured == pytest.approx(rate.exact, rel=1e-2)
    assert frequency.measured == pytest.approx(frequency.exact, rel=2e-3)


def test_the_ion_acoustic_root_is_that_of_hot_electrons_and_cold_ions():
    # omega^2 = k^2 c_s^2 (1 / (1 + k^2) + 3 T), damped by the electrons' slope at the wave's speed
    k, ratio = 0.3, 1836.0
    fluid = k * np.sqrt((1 / (1 + k**2) + 0.03) / ratio)
    omega = ion_acoustic(k, ratio, 0.01)
    assert omega.real == pytest.approx(fluid, rel=1e-3)
    slope = -fluid * np.sqrt(np.pi / 8 / ratio) / (1 + k**2) ** 1.5
    assert omega.imag == pytest.approx(slope, rel=3e-2)
    for k in (0.4, 1.0, 2.0):
        for ratio in (20.0, 100.0, 1836.0):
            for temperature in (0.01, 0.3, 1.0):
                omega = ion_acoustic(k, ratio, temperature)
                assert 0 < omega.real < 0.7 * k
                assert omega.imag < 0


def test_no_rate_is_told_where_another_wave_or_an_echo_hides_it():
    assert IonAcoustic(wavenumber=0.3).exact_root() is None
    coarse = IonAcoustic(cells_v=32, frames=2, duration=40.0)
    assert not coarse.checks(coarse.generate(0).frames)


def test_samples_with_ions_hold_both_species():
    frames = Sheath(cells_x=16, cells_v=32, frames=2, duration=5.0, size=16.0).generate(0).frames
    assert frames["f_ions"].dims == ("time", "x", "v_ions")
    dv = float(frames["v_ions"][1] - frames["v_ions"][0])
    summed = frames["f_ions"].sum("v_ions").values * dv
    assert np.allclose(summed, frames["n_ions"].values, rtol=1e-12)
    assert np.allclose(frames["T_ions"].values[0], 0.01, rtol=1e-3)
    assert frames["n"].values[-1, 0] < frames["n_ions"].values[-1, 0]


def test_ions_that_fall_through_a_sheath_stay_in_their_box():
    assert not Sheath(ion_temperature=0.1, frames=2).generate(0).notes


def test_stable_beams_have_no_rate():
    assert TwoStream(drift=0.5).exact_root() is None


def test_roots_of_the_literature():
    # Two-species ion-acoustic and cold limits: omega^2 = 1 + 3 k^2 at small k
    omega = least_damped(0.1, [Beam(1.0, 0.0, 1.0)], oscillating=True)
    assert omega.real == pytest.approx(np.sqrt(1 + 3 * 0.01 + 6e-4), rel=2e-3)
    assert abs(omega.imag) < 1e-8


def test_roots_from_many_guesses_are_those_from_each_one():
    beams = [Beam(0.9, 0.0, 1.0), Beam(0.1, 4.0, 0.5)]
    guesses = np.array([1.2 + 0.1j, 2.0 + 0.1j, 1.5 - 0.4j, 0.3 - 0.2j])
    with np.errstate(all="ignore"):
        together = dispersion._roots(0.4, beams, guesses)
        alone = [root(0.4, beams, complex(guess)) for guess in guesses]
    np.testing.assert_allclose(together, alone, rtol=1e-12)
    assert np.abs(dispersion.relation(together[:3], 0.4, beams)).max() < dispersion.RESIDUAL


def test_a_sheath_charges_the_walls_negatively():
    frames = Sheath(duration=20.0, frames=2).generate(0).frames
    field, density = frames["E"].values[-1], frames["n"].values[-1]
    assert field[0] < -0.5
    assert field[-1] == pytest.approx(-field[0], rel=1e-9)
    assert abs(field[32]) < 0.01
    assert density[0] < 0.4 < 0.95 < density[32]


def test_too_small_a_box_of_velocities_is_told_with_the_share():
    (note,) = Landau(**SMALL, v_max=3.5, duration=1.0).generate(0).notes
    assert "v_max 3.5 is too small" in note
    with pytest.raises(ConfigError, match="particles reach 4"):
        TwoStream(v_max=3.9)


@pytest.mark.parametrize(
    "settings", [{"wavenumber": 0.0}, {"amplitude": 1.0}, {"cells_v": 40}, {"cfl": 1.5}]
)
def test_settings_out_of_validity_are_refused(settings):
    with pytest.raises(ConfigError):
        Landau(**settings)


def test_frames_begin_after_the_spinup_and_a_campaign_opens(tmp_path):
    from scitoolkit.generators.base import Origin
    from scitoolkit.io.campaign import open_campaign
    from scitoolkit.io.campaign.parameters import parameter_values

    whole = Landau(cells_x=4, cells_v=16, v_max=6.0, duration=1.5, frames=4)
    late = whole.model_copy(update={"spinup": 0.5, "duration": 1.0, "frames": 3})
    first, second = whole.generate(0).frames, late.generate(0).frames
    assert second["time"].values.tolist() == [0.5, 1.0, 1.5]
    assert np.allclose(first["f"].values[1:], second["f"].values, atol=1e-9)
    energy = np.log(second["field_energy"].values[-1])
    assert second["log_field_energy"].values[-1] == pytest.approx(energy)
    for n, k in enumerate((0.4, 0.5)):
        made = whole.with_parameters({"wavenumber": k})
        origin = Origin(made.model_dump(mode="json"), 0, {"wavenumber": k})
        made.write(made.generate(0), origin, tmp_path / f"sample_{n}.nc")
    campaign = open_campaign(tmp_path, ["f", "log_field_energy"])
    assert campaign.index.bounds.tolist() == [0, 4, 8]
    assert parameter_values(campaign, "wavenumber").tolist() == [0.4, 0.5]


def test_a_rate_beyond_the_recurrence_of_the_grid_is_marked():
    made = Landau(cells_v=16, duration=60.0).sample({}, 0)
    assert "damping rate" in made.missed[0]
    assert "exact -0.1534" in made.missed[0]
    assert not Landau(duration=20.0).sample({}, 0).missed
