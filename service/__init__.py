"""The code that bots and workers share, the admin console, and the command line.

``service`` imports neither ``bots`` nor ``workers``. The packages ``overlay``, ``corona``, ``clash``, ``discovery``,
``location``, ``simulate`` and ``feeds`` (except its sandbox) are *pure*: they do not use ``await``, clocks, randomness,
environment variables or a database driver. Callers pass them times, random numbers and the ring (the list of live
nodes) as arguments.
"""
