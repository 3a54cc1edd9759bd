"""A potential behind a socket of the i-PI protocol, served by ASE instead of i-PI."""

import os
import threading

import ase.build
import numpy as np
from ase.calculators.socketio import SocketClient, SocketIOCalculator

from scitoolkit.potentials import Calculator, NequipConfig


def test_forces_and_stress_over_a_socket_are_those_of_the_calculator():
    model = NequipConfig(**{**NequipConfig.example, "lmax": 1}).build(["O", "H"])
    water = ase.build.molecule("H2O", cell=[6.0, 6.5, 7.0], pbc=True)
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
