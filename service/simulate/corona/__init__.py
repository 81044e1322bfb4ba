"""The experiment ``corona``: the simulations of Corona §5, with the paper's algorithms and with Coronet's."""
