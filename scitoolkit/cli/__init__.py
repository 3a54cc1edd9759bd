"""The command line `scitoolkit`, one file per command; each is thin around `scitoolkit.api`."""
