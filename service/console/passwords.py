"""Passwords: argon2id (RFC 9106) with the OWASP minimum, one at a time, off the event loop.

One at a time, because each takes 19 MiB and a core: a crowd of guesses must not starve the rest.
"""

import asyncio
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

SHORTEST: Final = 10
LONGEST: Final = 1024

_HASHER = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)
_DUMMY = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


class Passwords:
    """Hashes and verifies; one value per application, for its turn-taking."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def hash(self, password: str) -> str:
        """Return the argon2id string to be stored."""
        async with self._turn:
            return await asyncio.to_thread(_HASHER.hash, password)

    async def verify(self, password: str, stored: str) -> bool:
        """Return whether it is the password; if none is stored (""), take as long and return False."""
        async with self._turn:
            return await asyncio.to_thread(_matches, password, stored or _DUMMY) and bool(stored)


def _matches(password: str, stored: str) -> bool:
    try:
        return _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
