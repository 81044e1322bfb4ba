"""The experiment ``deploy``: Corona's deployment (§5.2) on one machine, in compressed time.

The experiment runs real worker processes, a real publisher and a real Redis; only the publication times are synthetic.
As in the paper's experiment on PlanetLab, 60 nodes monitor 7,500 channels with 150,000 subscriptions. One minute of the
experiment stands for half an hour in the paper. Measured delays are multiplied by thirty to convert them to the paper's
time.

- ``publication_plan``: publication times drawn from a seed, and the statistics of a run
- ``publisher``: the program that serves all channels
- ``experiment``: starts all processes, creates channels and subscriptions, and measures
- ``cli``: the command ``coronet simulate deploy``
"""
