"""Functions of sparse matrices by the submatrix method, and a tight-binding calculator."""
