"""The experiment ``deploy``: Corona's deployment (§5.2) on this machine, with time compressed.

Real worker processes of several nodes each, a real publisher, real Redis; nothing is simulated but how often
publishers publish. 60 nodes watch 7,500 channels for 150,000 subscriptions, as on PlanetLab; 30 minutes of the paper
are one minute here, so delays are shown in the paper's seconds, thirty times those of the clock.

- ``updates``  when which channel publishes: the same for everybody who has the seed
- ``origin``   a program that serves all channels
- ``people``   channels and subscriptions, written as the product writes them
- ``figures``  what came of it
- ``run``      starts everything, waits, and measures
"""
