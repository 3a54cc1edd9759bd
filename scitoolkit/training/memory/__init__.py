"""Training memory: activations kept compressed between the forward and the backward pass."""
