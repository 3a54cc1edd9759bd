"""Files that run in other codes' environments: they import nothing of scitoolkit."""
