"""Low-rank layers of an exported surrogate, chosen by measured time."""
