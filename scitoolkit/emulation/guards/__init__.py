"""Guards: what holds an emulator's state to the invariants of its equations, step by step."""
