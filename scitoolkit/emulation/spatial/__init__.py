"""Emulators whose fields are divided among processes along one dim of the grid."""
