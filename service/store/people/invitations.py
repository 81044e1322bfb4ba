"""Invitation codes, and the users who were admitted by a code.

Codes are random, and only their SHA-256 digests are stored, so that nobody can read the codes from Redis.
"""

import hashlib
import secrets
import time

from service.store.client import keys
from service.store.client.redis_client import RedisRepository

_CODE_BYTES = 9


class InvitationCodes(RedisRepository):
    """Invitation codes, and the users who were admitted by a code (guests). Methods may raise StoreUnavailable."""

    async def create(self, uses: int, lasts_s: float) -> str:
        """Create and return a code that admits up to ``uses`` users and is valid for ``lasts_s`` seconds."""
        code = secrets.token_urlsafe(_CODE_BYTES)
        await self._redis.call("HSET", keys.INVITATION_CODES, _digest(code), f"{uses} {int(time.time() + lasts_s)}")
        return code

    async def accept(self, jid: str, code: str) -> bool:
        """Use a code to admit the user ``jid``; return False if the code is invalid.

        The result is always True for a user who has already been admitted by any code.
        """
        script_keys = (keys.INVITATION_CODES, keys.GUESTS)
        arguments = (_digest(code), keys.user_id(jid), int(time.time()))
        return bool(await self._redis.run_script("invitation_accept", script_keys, *arguments))

    async def is_valid(self, code: str) -> bool:
        """Return whether a code can still admit a user."""
        found = await self._redis.call("HGET", keys.INVITATION_CODES, _digest(code))
        uses, until = map(int, (found or b"0 0").split())
        return uses > 0 and until > time.time()

    async def is_guest(self, jid: str) -> bool:
        """Return whether a user was admitted by an invitation code."""
        return bool(await self._redis.call("SISMEMBER", keys.GUESTS, keys.user_id(jid)))


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
