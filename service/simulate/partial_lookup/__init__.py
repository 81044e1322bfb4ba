"""The experiment ``partial-lookup``: the simulations of Sun and Garcia-Molina §4 and §6."""
