"""A potential behind a socket of the i-PI protocol, served by ASE, and by i-PI where it is."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import ase.build
import ase.io
import numpy as np
import pytest
from ase.calculators.socketio import SocketClient, SocketIOCalculator

from scitoolkit.potentials import Calculator, NequipConfig

IPI = Path(sys.executable).with_name("i-pi")
INPUT = """
<simulation verbosity='quiet'>
  <output prefix='run'>
    <properties stride='1' filename='out'> [ conserved{{electronvolt}} ] </properties>
    <trajectory filename='positions' stride='1' format='ase'> positions{{ase}} </trajectory>
    <trajectory filename='forces' stride='1' format='ase'> forces{{ase}} </trajectory>
  </output>
  <total_steps> 4 </total_steps>
  <prng><seed> 1 </seed></prng>
  <ffsocket mode='unix' name='driver' pbc='False'><address> {name} </address></ffsocket>
  <system>
    <initialize nbeads='2'>
      <file mode='ase'> start.xyz </file>
      <velocities mode='thermal' units='kelvin'> 300 </velocities>
    </initialize>
    <forces><force forcefield='driver'/></forces>
    <motion mode='dynamics'>
      <dynamics mode='{ensemble}'>
        <timestep units='femtosecond'> 0.25 </timestep>
        {barostat}
      </dynamics>
    </motion>
    <ensemble>
      <temperature units='kelvin'> 300 </temperature>
      {pressure}
    </ensemble>
  </system>
</simulation>
"""
BAROSTAT = "<barostat mode='isotropic'><tau units='femtosecond'> 100 </tau></barostat>"
THERMOSTAT = "<thermostat mode='pile_g'><tau units='femtosecond'> 100 </tau></thermostat>"
PRESSURE = "<pressure units='bar'> 1 </pressure>"


def water_and_model():
    model = NequipConfig(**{**NequipConfig.example, "lmax": 1}).build(["O", "H"])
    return ase.build.molecule("H2O", cell=[6.0, 6.5, 7.0], pbc=True), model


def test_forces_and_stress_over_a_socket_are_those_of_the_calculator():
    water, model = water_and_model()
    direct, served, name = water.copy(), water.copy(), f"scitoolkit_{os.getpid()}"
    direct.calc, served.calc = Calculator(model), Calculator(model)
    with SocketIOCalculator(unixsocket=name, timeout=60) as server:
        client = SocketClient(unixsocket=name, timeout=60)
        thread = threading.Thread(target=client.run, args=(served,), kwargs={"use_stress": True})
        thread.start()
        water.calc = server
        for _ in range(2):
            water.positions += 0.05
            water.positions[1, 0] += 0.02
            direct.positions = water.positions
            assert abs(water.get_potential_energy() - direct.get_potential_energy()) < 1e-10
            assert np.abs(water.get_forces() - direct.get_forces()).max() < 1e-10
            assert np.abs(water.get_stress() - direct.get_stress()).max() < 1e-10
    thread.join(timeout=60)
    assert not thread.is_alive()


@pytest.mark.skipif(not IPI.exists(), reason="make test-peers has i-PI")
@pytest.mark.parametrize("ensemble", ["nve", "npt"])
def test_path_integrals_of_ipi_have_the_forces_of_the_calculator(tmp_path, ensemble):
    water, model = water_and_model()
    ase.io.write(tmp_path / "start.xyz", water, format="extxyz")
    name, constant = f"scitoolkit_{ensemble}_{os.getpid()}", ensemble == "npt"
    options = {
        "barostat": THERMOSTAT + BAROSTAT if constant else "",
        "pressure": PRESSURE if constant else "",
    }
    text = INPUT.format(name=name, ensemble=ensemble, **options)
    (tmp_path / "input.xml").write_text(text)
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen([IPI, "input.xml"], cwd=tmp_path, stdout=log, stderr=log) as server,
    ):
        try:
            while not Path(f"/tmp/ipi_{name}").exists():
                assert server.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.1)
            served = water.copy()
            served.calc = Calculator(model)
            SocketClient(unixsocket=name, timeout=60).run(served, use_stress=True)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()
    conserved = np.loadtxt(tmp_path / "run.out")
    assert len(conserved) == 5
    assert np.ptp(conserved) < 1e-3
    for bead in range(2):
        positions = ase.io.read(tmp_path / f"run.positions_{bead}.extxyz", ":")
        forces = ase.io.read(tmp_path / f"run.forces_{bead}.extxyz", ":")
        assert len(positions) == 5
        for at, shown in zip(positions, forces, strict=True):
            at.pbc, at.calc = True, Calculator(model)
            assert np.abs(at.get_forces() - shown.get_forces()).max() < 1e-5
