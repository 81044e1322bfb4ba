"""Pauses of subscriptions. A pause begins when the user requests it, or when the user's messages bounce.

Nothing is queued for a paused subscription; only the last version before the pause is recorded. At the end of the
pause, a single item is queued, which covers all versions published during the pause. The cost of a pause therefore does
not depend on its length.
"""

import time
from collections.abc import Sequence

import msgspec

from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisClient
from service.store.delivery.outbox import Outbox


class ResumeResult(msgspec.Struct, frozen=True):
    """What was withheld from a user whose subscriptions have been resumed.

    - ``withheld``: how many versions of each channel were not delivered during the pause.
    - ``missed_matches``: how many matches of saved searches were not delivered during the pause.
    - ``saved_searches_resumed``: True if the saved searches had been paused and have now been resumed.
    """

    withheld: dict[ChannelId, int]
    missed_matches: int = 0
    saved_searches_resumed: bool = False


class SubscriptionPauses:
    """Pauses of subscriptions and saved searches. Every method may raise :class:`service.errors.StoreUnavailable`."""

    def __init__(self, redis: RedisClient, outbox: Outbox) -> None:
        self._redis = redis
        self._outbox = outbox

    async def pause(
        self, jid: str, cids: Sequence[ChannelId], *, saved_searches: bool = False, automatic: bool = False
    ) -> list[ChannelId]:
        """Pause subscriptions to these channels; return the channels whose subscriptions were not paused before.

        - ``saved_searches``: whether to pause all saved searches of the user as well.
        - ``automatic``: True if bounced messages cause the pause, False if the user requests it.

        Queued items of these channels are withheld; an automatic pause also withholds messages that are being sent. A
        pause that the user requests replaces an automatic one, so that an automatic :meth:`resume` does not end it.
        """
        script_keys = (*_own_keys(jid), keys.in_flight(keys.user_id(jid)))
        mark = "*" if automatic else ""
        paused = await self._redis.run_script("user_pause", script_keys, mark, int(saved_searches), *cids)
        return [cid.decode() for cid in paused]

    async def resume(
        self, jid: str, cids: Sequence[ChannelId], *, saved_searches: bool = False, automatic: bool = False
    ) -> ResumeResult:
        """Resume subscriptions to these channels; return what was withheld from the user during the pause.

        - ``saved_searches``: whether to resume all saved searches of the user as well.
        - ``automatic``: True to end only pauses that bounced messages caused; False to end all pauses.

        For each channel with withheld versions, one item is queued, which covers all of these versions.
        """
        mark, uid = "*" if automatic else "", keys.user_id(jid)
        script_keys = (*_own_keys(jid), keys.webhook(uid), keys.webhook_queue(uid))
        resumed, unheard, searches_paused = await self._redis.run_script(
            "user_resume", script_keys, time.time(), mark, int(saved_searches), *cids
        )
        await self._outbox.wake_delivery([uid])  # also without items: a repeated call cannot tell
        return ResumeResult(
            {cid.decode(): int(versions) for cid, versions in resumed}, int(unheard), bool(searches_paused)
        )

    async def suspend_unreachable(self, jid: str, cids: Sequence[ChannelId]) -> None:
        """Pause all subscriptions and saved searches of a user whose messages bounce.

        The pause lasts until :meth:`resume_reachable` is called. ``cids`` are the channels to which the user is
        subscribed. The call is idempotent.
        """
        key = keys.user(keys.user_id(jid))
        unreachable, silent = await self._redis.call("HMGET", key, "unreachable", "unheard")
        if unreachable is None:
            await self._redis.call("HSET", key, "unreachable", int(silent is None))
        await self.pause(jid, cids, saved_searches=True, automatic=True)

    async def resume_reachable(self, jid: str, cids: Sequence[ChannelId]) -> bool:
        """Resume the subscriptions and saved searches of a user that were paused because messages bounced.

        ``cids`` are the channels to which the user is subscribed. Return False if the user was not marked as
        unreachable.
        """
        key = keys.user(keys.user_id(jid))
        unreachable = await self._redis.call("HGET", key, "unreachable")
        if unreachable is None:
            return False
        await self.resume(jid, cids, saved_searches=unreachable == b"1", automatic=True)
        await self._redis.call("HDEL", key, "unreachable")
        return True


def _own_keys(jid: str) -> tuple[str, str, str]:
    uid = keys.user_id(jid)
    return keys.user_index(uid), keys.outbox(uid), keys.user(uid)
