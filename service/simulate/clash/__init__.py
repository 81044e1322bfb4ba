"""The experiment ``clash``: the simulations of CLASH §VI, compared with plain DHTs."""
