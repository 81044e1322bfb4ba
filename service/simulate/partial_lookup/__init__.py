"""The experiment ``partial-lookup``: the simulations of partial lookup (Sun and Garcia-Molina §4 and §6)."""
