"""Pauses: what a person is not told for a while, and is told in brief when that is over.

While a subscription is paused nothing of it is queued; it only remembers the last version that was not withheld. So
however long a pause is, it costs nothing and loses nothing: at its end one item stands for all that came meanwhile.
"""

import time
from collections.abc import Sequence

import msgspec

from service.model import ChannelId
from service.store import keys
from service.store.link import Link
from service.store.outbox import Outbox


class Resumed(msgspec.Struct, frozen=True):
    """How many versions of each channel were withheld, and how many articles standing queries met meanwhile."""

    withheld: dict[ChannelId, int]
    unheard: int = 0


class Pauses:
    """Who wants to be told nothing of what. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, link: Link, outbox: Outbox) -> None:
        """Use this link to Redis; what was withheld goes through the outbox."""
        self._link = link
        self._outbox = outbox

    async def pause(
        self, jid: str, cids: Sequence[ChannelId], *, watches: bool = False, unasked: bool = False
    ) -> list[ChannelId]:
        """Tell a person nothing of these channels, nor of their ``watches``; return which were not paused already.

        ``unasked``: it is we who do it, because nobody is there; they may have wished the same before, and what is in
        flight has not reached them.
        """
        own = (*_own_keys(jid), keys.in_flight(keys.user_id(jid)))
        paused = await self._link.script("user_pause", own, "*" if unasked else "", int(watches), *cids)
        return [cid.decode() for cid in paused]

    async def resume(
        self, jid: str, cids: Sequence[ChannelId], *, watches: bool = False, unasked: bool = False
    ) -> Resumed:
        """Tell a person of these channels again, and of their ``watches``; what was withheld is queued, each as one.

        ``unasked``: only what we paused without being asked. Only those that were paused are among what is returned.
        """
        own, mark = _own_keys(jid), "*" if unasked else ""
        resumed, unheard = await self._link.script("user_resume", own, time.time(), mark, int(watches), *cids)
        await self._outbox.wake_up([keys.user_id(jid)])  # also if nothing was: a repeated command does not tell
        return Resumed({cid.decode(): int(versions) for cid, versions in resumed}, int(unheard))

    async def rest(self, jid: str, cids: Sequence[ChannelId]) -> None:
        """Pause everything of a person whom nothing reaches, until :meth:`reinstate`; can be repeated."""
        own = keys.user(keys.user_id(jid))
        unreachable, silent = await self._link.call("HMGET", own, "unreachable", "unheard")
        if unreachable is None:
            await self._link.call("HSET", own, "unreachable", int(silent is None))
        await self.pause(jid, cids, watches=True, unasked=True)

    async def reinstate(self, jid: str, cids: Sequence[ChannelId]) -> bool:
        """Tell a person again of what we paused; False if they were not unreachable."""
        own = keys.user(keys.user_id(jid))
        watches = await self._link.call("HGET", own, "unreachable")
        if watches is None:
            return False
        await self.resume(jid, cids, watches=watches == b"1", unasked=True)
        await self._link.call("HDEL", own, "unreachable")
        return True


def _own_keys(jid: str) -> tuple[str, str, str]:
    uid = keys.user_id(jid)
    return keys.user_index(uid), keys.outbox(uid), keys.user(uid)
