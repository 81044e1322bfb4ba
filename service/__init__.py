"""What both programs share, and the admin console.

Rules of the house: ``service`` imports neither ``bots`` nor ``workers``. Its *pure* rooms
(``overlay``, ``corona``, and the deciding half of ``feeds``) hold no ``await``, clock,
randomness, environment or driver; time, random numbers and views of the ring are arguments.
"""
