"""The experiment ``clash``: the simulations of CLASH §VI, compared with plain distributed hash tables (DHTs)."""
