"""Laws hold at any speed: no example has a deadline, because the machine may be busy."""

from hypothesis import settings

settings.register_profile("laws", deadline=None)
settings.load_profile("laws")
