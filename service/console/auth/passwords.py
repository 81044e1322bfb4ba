"""Passwords of console accounts: rules, hashing, and the limit on queued hashes.

Passwords are hashed with argon2id (RFC 9106) with OWASP's minimum parameters. Because each hash takes 19 MiB of memory
and a CPU core, hashes are computed one at a time and outside the event loop. If many hashes are already queued, further
requests for a hash are refused.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from service.errors import LimitReached, UserError

MIN_PASSWORD_CHARS: Final = 10
MAX_PASSWORD_CHARS: Final = 1024
_HASHER = PasswordHasher(time_cost=2, memory_cost=19456, parallelism=1)
_DUMMY_HASH = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
_MAX_QUEUED = 64
"""Maximum number of queued hashes: about two seconds of work."""
_MAX_QUEUED_FOR_UNKNOWN = 48
"""Maximum number of queued hashes, including a new one for a browser that never logged in to the account. It is lower
than the limit for other browsers, so that password guesses leave capacity for them."""


def check_password(password: str, repeated: str) -> None:
    """Raise :class:`UserError` if ``password`` is too short or too long, or differs from ``repeated``."""
    if len(password) < MIN_PASSWORD_CHARS:
        raise UserError(f"The password needs at least {MIN_PASSWORD_CHARS} characters.")
    if len(password) > MAX_PASSWORD_CHARS:
        raise UserError(f"The password can have at most {MAX_PASSWORD_CHARS} characters.")
    if password != repeated:
        raise UserError("The two passwords do not match.")


class Passwords:
    """Hashes passwords one at a time, and limits the number of queued requests for a hash."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._queued = 0

    async def hash(self, password: str) -> str:
        """Return the argon2id hash of ``password``. Raises :class:`LimitReached` if too many hashes are queued."""
        async with self._turn(_MAX_QUEUED):
            return await asyncio.to_thread(_HASHER.hash, password)

    async def verify(self, password: str, stored: str, *, is_known: bool = False) -> bool:
        """Return whether ``password`` matches the argon2id string ``stored``.

        For an account without a password, ``stored`` is "". The result is then False, but computing it takes as long as
        for any other account. ``is_known`` states whether the browser has logged in to the account before; if so, a
        higher limit on queued hashes applies. Raises :class:`LimitReached` if too many hashes are queued.
        """
        async with self._turn(_MAX_QUEUED if is_known else _MAX_QUEUED_FOR_UNKNOWN):
            return await asyncio.to_thread(_matches, password, stored or _DUMMY_HASH) and bool(stored)

    @asynccontextmanager
    async def _turn(self, max_queued: int) -> AsyncIterator[None]:
        if self._queued >= max_queued:
            raise LimitReached("Too many people are logging in right now. Please try again in a few seconds.")
        self._queued += 1
        try:
            async with self._lock:
                yield
        finally:
            self._queued -= 1


def _matches(password: str, stored: str) -> bool:
    try:
        return _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
