"""Dead letters: messages that could not be delivered. Admins can read them, queue them again, or drop them."""

import re

import msgspec

from service.errors import UserError
from service.model import UserId
from service.store.client import keys
from service.store.client.redis_client import RedisClient
from service.store.client.streams import read_page
from service.store.delivery.outbox import Batch, MessageId, Outbox, OutboxItem

_STREAM_ID = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that could not be delivered.

    - ``why``: why the bot gave up delivering the message.
    - ``at_s``: when it gave up (Unix s).
    - ``items``: the items that the message contained.
    - ``readable``: False if the stored message cannot be decoded. In this case, ``user``, ``message_id`` and ``items``
      are empty, and the message can only be dropped.
    """

    id: str
    user: UserId
    message_id: MessageId
    why: str
    at_s: float
    items: tuple[OutboxItem, ...]
    readable: bool = True


class DeadLetters:
    """Reads, requeues and drops dead letters, which are messages that could not be delivered.

    The latest dead letters are kept, up to about 10,000. Every method may raise :class:`StoreUnavailable`.
    """

    def __init__(self, redis: RedisClient, outbox: Outbox) -> None:
        self._redis = redis
        self._outbox = outbox

    async def page(self, before: str = "", count: int = 50) -> tuple[list[DeadLetter], str]:
        """Return (letters, position): one page of dead letters, newest first, and the position of the next page.

        The page contains up to ``count`` dead letters. To read the next page, pass the returned position as ``before``.
        The position is "" if there are no further dead letters. To read the first page, pass "" as ``before``.
        """
        found, following = await read_page(self._redis, keys.DEAD_LETTERS, before, count)
        return [_parse_letter(*entry) for entry in found], following

    async def count(self) -> int:
        """Return the number of dead letters."""
        return int(await self._redis.call("XLEN", keys.DEAD_LETTERS))

    async def requeue(self, letter: str) -> bool:
        """Put the items of the dead letter with the id ``letter`` back into the user's outbox.

        If they were given up by the user's webhook, they are put back into the queue of the webhook. Items of
        subscriptions that have ended are left out. The dead letter is then deleted. The call is idempotent. Return
        False if the dead letter does not exist. Raises :class:`UserError` if the stored dead letter cannot be decoded,
        or if the webhook no longer exists.
        """
        found = (
            await self._redis.call("XRANGE", keys.DEAD_LETTERS, letter, letter) if _STREAM_ID.fullmatch(letter) else ()
        )
        if not found:
            return False
        fields = found[0][1]
        uid = _parse_letter(letter, fields).user
        if not uid:
            raise UserError("That message cannot be read: its content is unknown. It can be dropped.")
        queue = keys.outbox(uid)
        if b"w" in fields:
            if not await self._redis.call("EXISTS", keys.webhook(uid)):
                raise UserError("That person has no webhook any more. The message can be dropped.")
            queue = keys.webhook_queue(uid)
        script_keys = (keys.user_index(uid), queue, keys.requeued_dead_letter(uid, letter))
        await self._redis.run_script("outbox_requeue", script_keys, fields[b"items"])
        await self._outbox.wake_delivery([uid])
        await self._redis.call("XDEL", keys.DEAD_LETTERS, letter)
        return True

    async def drop(self, letter: str) -> bool:
        """Delete the dead letter with the id ``letter``; return False if it does not exist."""
        return bool(_STREAM_ID.fullmatch(letter) and await self._redis.call("XDEL", keys.DEAD_LETTERS, letter))


def _parse_letter(entry_id: str, fields: dict[bytes, bytes]) -> DeadLetter:
    at_s, why = int(entry_id.partition("-")[0]) / 1000, fields.get(b"why", b"").decode(errors="replace")
    try:
        user, message_id = fields[b"u"].decode(), fields[b"m"].decode()
        items = msgspec.json.decode(fields[b"items"], type=Batch).items
    except (KeyError, UnicodeDecodeError, msgspec.MsgspecError):
        user, message_id, items = "", "", ()
    return DeadLetter(entry_id, user, message_id, why, at_s, items, readable=bool(user))
