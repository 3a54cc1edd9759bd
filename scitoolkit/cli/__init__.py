"""The command line `scitoolkit`: one file per command, each a thin wrapper of `scitoolkit.api`."""
