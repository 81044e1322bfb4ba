"""Subscriptions to WebSub hubs, made on behalf of channels, and queues of the documents that hubs have pushed."""

import secrets
from collections.abc import Callable, Sequence

import msgspec

from service.errors import StoreUnavailable
from service.feeds.websub_protocol import HubCredentials, HubState
from service.model import ChannelId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository

PUSHES_PER_MINUTE = 30
MAX_QUEUED_PUSHES = 4
_PUSH_TTL_MS = 120_000
_MINUTE_MS = 60_000
_KIBIBYTE = 1024
_MAX_CHANNEL_BYTES = 5_184 * _KIBIBYTE
"""Maximum size of a channel's queue in bytes: the largest accepted document, plus the overhead of msgpack."""
_LARGE_BYTES = 128 * _KIBIBYTE
_MAX_LARGE_BYTES = 48 * 1024 * _KIBIBYTE
_MAX_TOTAL_BYTES = 64 * 1024 * _KIBIBYTE
"""Maximum size in bytes of the queues of all channels together.

Queues larger than ``_LARGE_BYTES`` may together use only ``_MAX_LARGE_BYTES``. The rest is reserved for smaller queues.
"""
_TRIES = 8
_RANDOM_BYTES = 32


class Push(msgspec.Struct, frozen=True, array_like=True):
    """A document that a hub has pushed.

    If ``body`` is empty, the document was not stored, and a poll has to fetch the channel's new content.
    """

    body: bytes = b""
    content_type: str = ""


def new_hub_secrets() -> HubCredentials:
    """Generate random secret tokens for a new hub subscription."""
    return HubCredentials(secrets.token_urlsafe(_RANDOM_BYTES), secrets.token_urlsafe(_RANDOM_BYTES))


class WebSubStore(RedisRepository):
    """Stores each channel's hub subscription, and its queue of pushed documents."""

    async def get(self, cid: ChannelId) -> HubState | None:
        """Return a channel's hub subscription; None if it has none."""
        return (await self.get_many([cid]))[0]

    async def get_many(self, cids: Sequence[ChannelId]) -> list[HubState | None]:
        """Return the channels' hub subscriptions in the order of ``cids``; None for each channel without one."""
        found = await self._redis.call_many([("GET", keys.hub_subscription(cid)) for cid in cids])
        return [msgspec.msgpack.decode(state, type=HubState) if state else None for state in found]

    async def compare_and_set(self, cid: ChannelId, before: HubState | None, after: HubState | None) -> bool:
        """Replace a channel's hub subscription with ``after`` if it equals ``before``; return whether it was replaced.

        If ``before`` is None, the channel must have no subscription. If ``after`` is None, the subscription is deleted.
        """
        if after is not None:
            # First, because an id without a subscription is harmless, but a subscription without it is never renewed.
            await self._redis.call("SADD", keys.hub_registry(cid[:2]), cid)
        return bool(
            await self._redis.run_script(
                "hub_compare_and_set", (keys.hub_subscription(cid),), _packed(before), _packed(after)
            )
        )

    async def change(self, cid: ChannelId, decide: Callable[[HubState | None], HubState | None]) -> HubState | None:
        """Replace a channel's hub subscription with the result of ``decide``; return that result.

        ``decide`` is called with the present subscription and returns the new one; None stands for no subscription. It
        is called again if another process changes the subscription in the meantime. Raises :class:`StoreUnavailable` if
        this happens several times in a row.
        """
        for _ in range(_TRIES):
            before = await self.get(cid)
            after = decide(before)
            if after == before or await self.compare_and_set(cid, before, after):
                return after
        raise StoreUnavailable(f"The hub subscription of channel {cid[:8]} changes too fast. Try again.")

    async def ids_in_buckets(self, buckets: Sequence[str]) -> list[ChannelId]:
        """Return the sorted ids of the channels in ``buckets`` that have, or recently had, a hub subscription.

        A channel's bucket is the first two hexadecimal digits of its id.
        """
        found = await self._redis.call_many([("SMEMBERS", keys.hub_registry(bucket)) for bucket in buckets])
        return sorted(cid.decode() for ids in found for cid in ids)

    async def unregister(self, cids: Sequence[ChannelId]) -> None:
        """Remove channels from the list of channels that have a hub subscription."""
        await self._redis.call_many([("SREM", keys.hub_registry(cid[:2]), cid) for cid in cids])

    async def count_push(self, cid: ChannelId) -> bool:
        """Count a push for a channel; return whether the channel is still within the limit ``PUSHES_PER_MINUTE``."""
        key = keys.push_count(cid)
        return bool(await self._redis.run_script("usage_count", (key,), PUSHES_PER_MINUTE, _MINUTE_MS))

    async def count_excess_poll(self, cid: ChannelId) -> bool:
        """Count a push beyond the limit ``PUSHES_PER_MINUTE``; return whether the caller may request a poll instead.

        For each channel, the result is True for the first such push in a minute, and False for further ones.
        """
        return bool(await self._redis.run_script("usage_count", (keys.excess_push_count(cid),), 1, _MINUTE_MS))

    async def queue_push(self, cid: ChannelId, push: Push) -> None:
        """Queue a document that a hub has pushed. It stays queued until a worker takes it, for at most two minutes.

        - If the same document is pushed several times in a row, it is stored once.
        - If the queue would exceed ``MAX_QUEUED_PUSHES`` or a size limit, one entry without a document replaces
          everything in the queue. The content is then fetched by a poll.
        """
        packed = (msgspec.msgpack.encode(push), msgspec.msgpack.encode(Push()))
        bounds = MAX_QUEUED_PUSHES, _PUSH_TTL_MS, _MAX_CHANNEL_BYTES, _LARGE_BYTES, _MAX_LARGE_BYTES, _MAX_TOTAL_BYTES
        await self._redis.run_script("push_enqueue", keys.push_queue(cid), cid, *packed, *bounds)

    async def take_pushes(self, cid: ChannelId) -> list[Push]:
        """Remove a channel's queued pushes and return them, oldest first.

        If the caller fails before it has processed them, no content is lost, because the next poll finds the content.
        """
        found = await self._redis.run_script("push_dequeue", keys.push_queue(cid), cid, _LARGE_BYTES, 1)
        return [msgspec.msgpack.decode(push, type=Push) for push in found or ()]

    async def queued_bytes(self, cid: ChannelId) -> int:
        """Return the total size of a channel's queued pushes in bytes."""
        _, sizes, _ = keys.push_queue(cid)
        return int(await self._redis.call("HGET", sizes, cid) or 0)

    async def drop_pushes(self, cid: ChannelId) -> None:
        """Delete a channel's queued pushes."""
        await self._redis.run_script("push_dequeue", keys.push_queue(cid), cid, _LARGE_BYTES, 0)


def _packed(state: HubState | None) -> bytes:
    return b"" if state is None else msgspec.msgpack.encode(state)
