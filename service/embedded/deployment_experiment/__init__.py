"""The experiment ``deploy``: Corona's deployment (§5.2) on one machine, with compressed time.

It runs real worker processes, a real publisher and a real Redis; only the publication times are synthetic. As on
PlanetLab, 60 nodes monitor 7,500 channels with 150,000 subscriptions. Half an hour of the paper takes one minute here.
Delays are reported in the paper's seconds, thirty times the measured ones.

- ``publication_plan``: publication times drawn from a seed, and the statistics of a run
- ``publisher``: the program that serves all channels
- ``experiment``: starts all processes, creates channels and subscriptions, and measures
- ``cli``: the command ``coronet simulate deploy``
"""
