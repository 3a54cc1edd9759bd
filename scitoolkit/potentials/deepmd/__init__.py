"""Deep Potential models: descriptors, fitting nets, deepmd-kit's input and weights files."""
