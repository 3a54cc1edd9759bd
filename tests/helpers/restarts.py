"""What every simulation with threads and a saved state keeps."""

from __future__ import annotations

from typing import Any


def assert_restart_is_exact(one: Any, two: Any, duration: float = 1.0) -> None:
    """Compare two simulations of unequal threads bit for bit, the second one restarted half way."""
    one.advance(duration)
    two.advance(duration)
    assert one.modes().tobytes() == two.modes().tobytes()
    saved = one.state()
    one.advance(duration)
    two.restore(saved)
    two.advance(duration)
    assert one.modes().tobytes() == two.modes().tobytes()
    assert one.field_energies == two.field_energies
