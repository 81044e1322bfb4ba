"""Channels' subscriptions at hubs, and what hubs pushed that no worker has read yet."""

import secrets
from collections.abc import Callable, Sequence

import msgspec

from service.errors import StoreUnavailable
from service.feeds.websub import HubCredentials, HubState
from service.model import ChannelId
from service.store.client import keys
from service.store.client.connection import RedisRepository

PUSHES_PER_MINUTE = 30
MAX_QUEUED_PUSHES = 4
_KEPT_MS = 120_000
_MINUTE_MS = 60_000
_KIBIBYTE = 1024
_MOST_OF_A_CHANNEL_BYTES = 5_184 * _KIBIBYTE
"""The largest push that is taken, and what msgpack adds."""
_LARGE_BYTES = 128 * _KIBIBYTE
_MOST_LARGE_BYTES = 48 * 1024 * _KIBIBYTE
_MOST_BYTES = 64 * 1024 * _KIBIBYTE
"""Of all channels together; large ones leave room to the others."""
_TRIES = 8
_RANDOM_BYTES = 32


class Push(msgspec.Struct, frozen=True, array_like=True):
    """A document that a hub sent; without a body it says no more than that there is news."""

    body: bytes = b""
    content_type: str = ""


def new_hub_secrets() -> HubCredentials:
    """Return random texts for a subscription that may begin."""
    return HubCredentials(secrets.token_urlsafe(_RANDOM_BYTES), secrets.token_urlsafe(_RANDOM_BYTES))


class WebSub(RedisRepository):
    """Each channel's :class:`HubState`, changed by one at a time; pushes of a channel, few and for a short time."""

    async def get(self, cid: ChannelId) -> HubState | None:
        """Return a channel's subscription, or None."""
        return (await self.get_many([cid]))[0]

    async def get_many(self, cids: Sequence[ChannelId]) -> list[HubState | None]:
        """Return the channels' subscriptions, in the order asked for."""
        found = await self._redis.call_many([("GET", keys.hub_subscription(cid)) for cid in cids])
        return [msgspec.msgpack.decode(state, type=HubState) if state else None for state in found]

    async def compare_and_set(self, cid: ChannelId, before: HubState | None, after: HubState | None) -> bool:
        """Change a subscription; False, and no change, if it is not ``before`` any more."""
        if after is not None:
            # First: an id without a subscription is harmless, the reverse would never be renewed.
            await self._redis.call("SADD", keys.hub_registry(cid[:2]), cid)
        return bool(
            await self._redis.run_script("hub_swap", (keys.hub_subscription(cid),), _packed(before), _packed(after))
        )

    async def change(self, cid: ChannelId, decide: Callable[[HubState | None], HubState | None]) -> HubState | None:
        """Change a subscription to what ``decide`` makes of it, and return that.

        ``decide`` is asked again when somebody else was faster.
        """
        for _ in range(_TRIES):
            before = await self.get(cid)
            after = decide(before)
            if after == before or await self.compare_and_set(cid, before, after):
                return after
        raise StoreUnavailable(f"The hub subscription of channel {cid[:8]} changes too fast. Try again.")

    async def ids_in_buckets(self, buckets: Sequence[str]) -> list[ChannelId]:
        """Return the channels with a subscription in these registry buckets; some may have none any more."""
        found = await self._redis.call_many([("SMEMBERS", keys.hub_registry(bucket)) for bucket in buckets])
        return sorted(cid.decode() for ids in found for cid in ids)

    async def unregister(self, cids: Sequence[ChannelId]) -> None:
        """Forget that these channels had a subscription."""
        await self._redis.call_many([("SREM", keys.hub_registry(cid[:2]), cid) for cid in cids])

    async def take_push(self, cid: ChannelId) -> bool:
        """Count a push to a channel; say whether it is one of the first ``PUSHES_PER_MINUTE``."""
        key = keys.push_count(cid)
        return bool(await self._redis.run_script("rate_take", (key,), PUSHES_PER_MINUTE, _MINUTE_MS))

    async def take_excess_poll(self, cid: ChannelId) -> bool:
        """Say whether one more push than that may become a poll: once a minute."""
        return bool(await self._redis.run_script("rate_take", (keys.excess_push_count(cid),), 1, _MINUTE_MS))

    async def queue_push(self, cid: ChannelId, push: Push) -> None:
        """Keep a push until it is taken, for at most two minutes.

        The same one twice in a row is kept once. More than ``MAX_QUEUED_PUSHES``, or more bytes than one channel or all
        together may have here, become one without a body: a poll reads all of them at once.
        """
        packed = (msgspec.msgpack.encode(push), msgspec.msgpack.encode(Push()))
        bounds = MAX_QUEUED_PUSHES, _KEPT_MS, _MOST_OF_A_CHANNEL_BYTES, _LARGE_BYTES, _MOST_LARGE_BYTES, _MOST_BYTES
        await self._redis.run_script("push_keep", keys.push_queue(cid), cid, *packed, *bounds)

    async def take_pushes(self, cid: ChannelId) -> list[Push]:
        """Take what was pushed, oldest first. What its taker does not live to read, the next poll finds."""
        found = await self._redis.run_script("push_take", keys.push_queue(cid), cid, _LARGE_BYTES, 1)
        return [msgspec.msgpack.decode(push, type=Push) for push in found or ()]

    async def queued_bytes(self, cid: ChannelId) -> int:
        """Return the size of what was pushed."""
        _, sizes, _ = keys.push_queue(cid)
        return int(await self._redis.call("HGET", sizes, cid) or 0)

    async def drop_pushes(self, cid: ChannelId) -> None:
        """Keep what was pushed no longer."""
        await self._redis.run_script("push_take", keys.push_queue(cid), cid, _LARGE_BYTES, 0)


def _packed(state: HubState | None) -> bytes:
    return b"" if state is None else msgspec.msgpack.encode(state)
