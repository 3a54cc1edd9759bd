"""Emulators with fields divided among processes along one grid dim."""
