"""Memory of activations during training: compression, recomputation, offloading."""
