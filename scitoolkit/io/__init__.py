"""Reading and writing: fields, time axes, splits, and the loader of training batches."""
