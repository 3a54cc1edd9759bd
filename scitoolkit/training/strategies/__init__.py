"""Training strategies: how the processes of a job share a training."""
