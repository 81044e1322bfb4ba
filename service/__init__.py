"""The code that bots and workers share, the admin console, and the command line.

``service`` imports neither ``bots`` nor ``workers``. Its pure packages (``overlay``, ``corona``, ``clash``,
``discovery``, ``location``, ``simulate``, ``feeds`` except its sandbox) use no ``await``, clock, randomness,
environment or driver: they get time, random numbers and the ring (the list of live nodes) as arguments.
"""
