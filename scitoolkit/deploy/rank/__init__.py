"""Low-rank approximation of layers of an exported surrogate, with ranks chosen by measured time."""
