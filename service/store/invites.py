"""Invitations: who may talk to a bot that talks to guests only.

A code is random and stored only as SHA-256: who reads Redis cannot come in with what they find.
"""

import hashlib
import secrets
import time

from service.store import keys
from service.store.link import Part

_CODE_BYTES = 9


class Invites(Part):
    """Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def create(self, uses: int, lasts_s: float) -> str:
        """Return the code of a new invitation, good for so many people and so long."""
        code = secrets.token_urlsafe(_CODE_BYTES)
        await self._link.call("HSET", keys.INVITES, _digest(code), f"{uses} {int(time.time() + lasts_s)}")
        return code

    async def accept(self, jid: str, code: str) -> bool:
        """Use a code up for one person; False if it is not good. For who is a guest already it need not be."""
        own = (keys.INVITES, keys.GUESTS)
        uid = keys.user_id(jid)
        return bool(await self._link.script("invite_accept", own, _digest(code), uid, int(time.time())))

    async def is_good(self, code: str) -> bool:
        """Return whether an invitation would let somebody in."""
        found = await self._link.call("HGET", keys.INVITES, _digest(code))
        uses, until = map(int, (found or b"0 0").split())
        return uses > 0 and until > time.time()

    async def is_guest(self, jid: str) -> bool:
        """Return whether a person came with an invitation."""
        return bool(await self._link.call("SISMEMBER", keys.GUESTS, keys.user_id(jid)))


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "replace")).hexdigest()
