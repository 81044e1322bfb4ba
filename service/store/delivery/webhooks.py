"""Webhooks: URLs to which users' notifications are also posted, each with a queue of items that are still to be posted.

The scripts that queue an item in a user's outbox also queue it here, atomically, if the user has a webhook. An item
stays in the queue until the webhook has accepted it, or until it is given up and becomes a dead letter.
"""

import secrets
from base64 import b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from service.model import UserId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository, script_command
from service.store.client.streams import append_command
from service.store.delivery.outbox import Batch, QueuedItem, parse_item

_ITEMS_PER_LETTER: Final = 60


class WebhookState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a webhook whose last request has failed.

    - ``tries``: how many requests have failed since the last successful one.
    - ``failing_since_s``, ``next_s``: when the first of them failed, and when the next request is due (Unix s).
    - ``error``: why the last one failed.
    - ``is_reported``: whether the user has been told that items were given up.
    """

    tries: int = 0
    failing_since_s: float = 0.0
    next_s: float = 0.0
    error: str = ""
    is_reported: bool = False


class Webhook(msgspec.Struct, frozen=True):
    """A user's webhook: its URL, the secret with which requests are signed, and the state while it fails."""

    url: str
    secret: str
    state: WebhookState = WebhookState()


class Webhooks(RedisRepository):
    """Stores the users' webhooks and their queues. One process at a time sends for a user."""

    async def create(self, uid: UserId, url: str) -> str:
        """Set a user's webhook to ``url``, and return its new secret. An earlier webhook and its queue are deleted."""
        secret = f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"
        await self._redis.call("SADD", keys.WEBHOOK_USERS, uid)  # first, because a sender finds webhooks there
        deletion = ("DEL", keys.webhook(uid), keys.webhook_queue(uid))
        await self._redis.call_many([deletion, ("HSET", keys.webhook(uid), "url", url, "secret", secret)])
        return secret

    async def delete(self, uid: UserId) -> None:
        """Delete a user's webhook with its queue, if there is one."""
        await self._redis.call("DEL", keys.webhook(uid), keys.webhook_queue(uid))
        await self._redis.call("SREM", keys.WEBHOOK_USERS, uid)

    async def get(self, uid: UserId) -> Webhook | None:
        """Return a user's webhook; None if there is none."""
        url, secret, state = await self._redis.call("HMGET", keys.webhook(uid), "url", "secret", "state")
        if url is None:
            return None
        return Webhook(url.decode(), secret.decode(), msgspec.json.decode(state or b"{}", type=WebhookState))

    async def users(self) -> set[UserId]:
        """Return the users who have a webhook."""
        return {uid.decode() for uid in await self._redis.call("SMEMBERS", keys.WEBHOOK_USERS)}

    async def queue_lengths(self, uids: Sequence[UserId]) -> list[int]:
        """Return, for each user in order, how many items wait for the user's webhook."""
        return await self._redis.call_many([("XLEN", keys.webhook_queue(uid)) for uid in uids])

    async def oldest_items(self, uid: UserId, max_items: int = 1, until_s: float | None = None) -> list[QueuedItem]:
        """Return up to ``max_items`` of the oldest items that wait for a user's webhook.

        If ``until_s`` (Unix s) is not None, only items that were queued by then are returned.
        """
        end = "+" if until_s is None else int(until_s * 1000)
        found = await self._redis.call("XRANGE", keys.webhook_queue(uid), "-", end, "COUNT", max_items)
        return [parse_item(*entry) for entry in found]

    async def record(
        self, uid: UserId, webhook: Webhook, state: WebhookState, items: Sequence[QueuedItem] = ()
    ) -> None:
        """Store the state of a user's webhook after a request, and remove ``items`` from its queue."""
        # The script does not create a webhook again that has been deleted meanwhile.
        update = script_command("user_set_field", (keys.webhook(uid),), "state", msgspec.json.encode(state))
        await self._redis.call_many([] if state == webhook.state else [update])
        if items:
            await self._redis.call("XDEL", keys.webhook_queue(uid), *(item.id for item in items))

    async def move_to_dead_letters(self, uid: UserId, until_s: float, reason: str) -> bool:
        """Add the items that were queued by ``until_s`` (Unix s) to the dead letters; return whether there were any.

        ``reason`` tells admins why they were given up.
        """
        has_items = False
        while items := await self.oldest_items(uid, _ITEMS_PER_LETTER, until_s):
            batch = Batch(f"{uid}-{items[0].id}", tuple(item.item for item in items), acked=False, claimed_s=until_s)
            letter = ("u", uid, "m", batch.message_id, "why", reason, "w", "1", "items", msgspec.json.encode(batch))
            await self._redis.call(*append_command(keys.DEAD_LETTERS, *letter))
            await self._redis.call("XDEL", keys.webhook_queue(uid), *(item.id for item in items))
            has_items = True
        return has_items
