"""Passwords: argon2id (RFC 9106) with the OWASP minimum, one at a time, off the event loop.

One at a time, because each takes 19 MiB and a core: a crowd of guesses must not starve the rest. Who comes when
many wait already is turned away, so that nobody waits for long.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from service.errors import LimitReached

SHORTEST: Final = 10
LONGEST: Final = 1024

_HASHER = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)
_DUMMY = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


_MOST_WAIT = 64
"""Two seconds' worth."""
_MOST_STRANGERS_WAIT = 48
"""A crowd that guesses leaves room for whom a link or a known browser's cookie brings."""


class Passwords:
    """Hashes and verifies; one value per application, for its turn-taking."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Return the argon2id string to be stored. Raises :class:`LimitReached`."""
        async with self._in_turn(_MOST_WAIT):
            return await asyncio.to_thread(_HASHER.hash, password)

    async def verify(self, password: str, stored: str, *, is_known: bool = False) -> bool:
        """Return whether it is the password; if none is stored (""), take as long and return False.

        ``is_known``: the request comes from a browser that the account is known by. Raises :class:`LimitReached`.
        """
        async with self._in_turn(_MOST_WAIT if is_known else _MOST_STRANGERS_WAIT):
            return await asyncio.to_thread(_matches, password, stored or _DUMMY) and bool(stored)

    @asynccontextmanager
    async def _in_turn(self, most_wait: int) -> AsyncIterator[None]:
        if self._waiting >= most_wait:
            raise LimitReached("Too many people log in at this moment. Try again in a few seconds.")
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1


def _matches(password: str, stored: str) -> bool:
    try:
        return _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
