"""Networks from fields to fields, each made for boundaries chosen per dim."""
