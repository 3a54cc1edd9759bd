"""Lowerings of ATen operators to C, one file a family; others add theirs as plug-ins."""
