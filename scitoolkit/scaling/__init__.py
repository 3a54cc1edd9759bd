"""How a training scales on this machine: what `scitoolkit bench training` measures and predicts."""
