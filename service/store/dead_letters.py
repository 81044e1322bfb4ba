"""Messages that could never be delivered: what they would have told whom, and why they did not."""

import re

import msgspec

from service.errors import UserError
from service.model import UserId
from service.store import keys
from service.store.link import Link
from service.store.outbox import Batch, MessageId, Outbox, OutboxItem

_PLACE = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)


class DeadLetter(msgspec.Struct, frozen=True):
    """One of them; ``at_s`` is when it was given up (Unix s).

    What is not ``readable`` may lack anything: it can only be dropped.
    """

    id: str
    user: UserId
    message_id: MessageId
    why: str
    at_s: float
    items: tuple[OutboxItem, ...]
    readable: bool = True


class DeadLetters:
    """The newest ~10,000. Every method may raise :class:`StoreUnavailable`."""

    def __init__(self, link: Link, outbox: Outbox) -> None:
        """Use this link to Redis; the outbox is where they go back to."""
        self._link = link
        self._outbox = outbox

    async def page(self, before: str = "", count: int = 50) -> tuple[list[DeadLetter], str]:
        """Return letters, newest first, and the place to go on from; "" begins and ends."""
        newest = f"({before}" if before else "+"
        found = await self._link.call("XREVRANGE", keys.DEAD_LETTERS, newest, "-", "COUNT", count + 1)
        letters = [_letter(place, fields) for place, fields in found]
        return letters[:count], letters[count - 1].id if len(letters) > count else ""

    async def count(self) -> int:
        """Return how many there are."""
        return int(await self._link.call("XLEN", keys.DEAD_LETTERS))

    async def requeue(self, letter: str) -> bool:
        """Have what a letter would have told be told, but for what its person has ended; False if there is none.

        Can be repeated after a crash. Raises :class:`UserError` for one that cannot be read.
        """
        found = await self._link.call("XRANGE", keys.DEAD_LETTERS, letter, letter) if _PLACE.fullmatch(letter) else ()
        if not found:
            return False
        fields = found[0][1]
        uid = _letter(*found[0]).user
        if not uid:
            raise UserError("That message cannot be read: nobody knows what it would have told. It can be forgotten.")
        own = (keys.user_index(uid), keys.outbox(uid), keys.revived(uid, letter))
        await self._link.script("outbox_revive", own, fields[b"items"])
        await self._outbox.wake_up([uid])
        await self._link.call("XDEL", keys.DEAD_LETTERS, letter)
        return True

    async def drop(self, letter: str) -> bool:
        """Forget a letter; False if there is none."""
        return bool(_PLACE.fullmatch(letter) and await self._link.call("XDEL", keys.DEAD_LETTERS, letter))


def _letter(place: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
    at_s = int(place.partition(b"-")[0]) / 1000
    try:
        user, message_id, why = (fields[name].decode() for name in (b"u", b"m", b"why"))
        items = msgspec.json.decode(fields[b"items"], type=Batch).items
    except (KeyError, UnicodeDecodeError, msgspec.MsgspecError):
        user, items = "", ()
    if not user:
        said = fields.get(b"why", b"").decode(errors="replace")
        return DeadLetter(place.decode(), "", "", said, at_s, (), readable=False)
    return DeadLetter(place.decode(), user, message_id, why, at_s, items)
