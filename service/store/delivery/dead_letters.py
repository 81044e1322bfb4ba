"""Dead letters: messages that could not be delivered, which admins read, queue again or drop."""

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
    """A message that could not be delivered, and was given up at ``at_s`` (Unix s) for the reason ``why``.

    If ``readable`` is False, the stored message cannot be decoded. Then ``user``, ``message_id`` and ``items`` are
    empty, and the message can only be dropped.
    """

    id: str
    user: UserId
    message_id: MessageId
    why: str
    at_s: float
    items: tuple[OutboxItem, ...]
    readable: bool = True


class DeadLetters:
    """The newest ~10,000 dead letters. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, redis: RedisClient, outbox: Outbox) -> None:
        self._redis = redis
        self._outbox = outbox

    async def page(self, before: str = "", count: int = 50) -> tuple[list[DeadLetter], str]:
        """Return ``count`` dead letters, newest first, and the id to pass as ``before`` for the next page.

        To get the newest letters, pass "". The returned id is "" if there are no further letters.
        """
        found, following = await read_page(self._redis, keys.DEAD_LETTERS, before, count)
        return [_parse_letter(*entry) for entry in found], following

    async def count(self) -> int:
        """Return the number of dead letters."""
        return int(await self._redis.call("XLEN", keys.DEAD_LETTERS))

    async def requeue(self, letter: str) -> bool:
        """Put the items of a dead letter back into the outbox, except items of subscriptions that have ended.

        ``letter`` is the id of the dead letter. Return False if it does not exist. The call is idempotent. Raises
        :class:`UserError` if the stored letter cannot be decoded.
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
        script_keys = (keys.user_index(uid), keys.outbox(uid), keys.requeued_dead_letter(uid, letter))
        await self._redis.run_script("outbox_requeue", script_keys, fields[b"items"])
        await self._outbox.wake_delivery([uid])
        await self._redis.call("XDEL", keys.DEAD_LETTERS, letter)
        return True

    async def drop(self, letter: str) -> bool:
        """Delete the dead letter with this id; return False if it does not exist."""
        return bool(_STREAM_ID.fullmatch(letter) and await self._redis.call("XDEL", keys.DEAD_LETTERS, letter))


def _parse_letter(entry_id: str, fields: dict[bytes, bytes]) -> DeadLetter:
    at_s, why = int(entry_id.partition("-")[0]) / 1000, fields.get(b"why", b"").decode(errors="replace")
    try:
        user, message_id = fields[b"u"].decode(), fields[b"m"].decode()
        items = msgspec.json.decode(fields[b"items"], type=Batch).items
    except (KeyError, UnicodeDecodeError, msgspec.MsgspecError):
        user, message_id, items = "", "", ()
    return DeadLetter(entry_id, user, message_id, why, at_s, items, readable=bool(user))
