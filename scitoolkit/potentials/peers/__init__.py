"""Scripts for the environments of other codes, which do not import scitoolkit."""
