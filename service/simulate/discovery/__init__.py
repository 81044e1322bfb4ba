"""The experiment ``discovery``: the simulations of content discovery (Gao and Steenkiste §V and §VI)."""
