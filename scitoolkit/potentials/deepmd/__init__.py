"""Deep Potential models: descriptors and fitting nets, deepmd-kit's inputs and weights."""
