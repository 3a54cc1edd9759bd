"""Training strategies: distribution of a training over processes."""
