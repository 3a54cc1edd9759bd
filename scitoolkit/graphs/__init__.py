"""Full-graph GNN training on any number of processes, for torch-geometric models."""
