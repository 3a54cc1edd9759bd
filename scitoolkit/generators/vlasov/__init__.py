"""Alias-free modal discontinuous Galerkin solver of the Vlasov equation in one spatial dimension."""
