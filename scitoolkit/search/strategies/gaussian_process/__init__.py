"""Search strategy `gaussian_process`, the default: Bayesian optimisation over real, integer,
categorical and conditional parameters."""
