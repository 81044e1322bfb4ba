"""What a check found."""

import msgspec


class Finding(msgspec.Struct, frozen=True):
    """One thing that is as it should be, or is not; ``advice`` says what to do about the latter."""

    about: str
    ok: bool
    seen: str
    advice: str = ""
