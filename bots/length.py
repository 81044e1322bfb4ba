"""How long a message may be. Pure."""

from typing import Final

LONGEST_MESSAGE_BYTES: Final = 4096

_ELLIPSIS = "…"


def clip(text: str, longest_bytes: int) -> str:
    """Return the text cut between characters to at most ``longest_bytes`` of UTF-8."""
    encoded = text.encode()
    if len(encoded) <= longest_bytes:
        return text
    room = longest_bytes - len(_ELLIPSIS.encode())
    return encoded[:room].decode(errors="ignore").rstrip() + _ELLIPSIS
