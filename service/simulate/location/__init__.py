"""The experiment ``location``: the simulations of attenuated Bloom filters (Rhea and Kubiatowicz §III and §IV)."""
