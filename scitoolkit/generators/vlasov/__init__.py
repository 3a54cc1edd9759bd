"""Alias-free modal discontinuous Galerkin solver of the Vlasov equation in 1X1V and 1X2V."""
