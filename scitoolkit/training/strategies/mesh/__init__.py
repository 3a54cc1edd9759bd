"""Training on a mesh of processes: pipeline stages, shares of the batch, parts of the products."""
