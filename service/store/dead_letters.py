"""Messages that could never be delivered: what they would have told whom, and why they did not."""

import re

import msgspec

from service.model import UserId
from service.store import keys
from service.store.link import Link
from service.store.outbox import MessageId, Outbox, OutboxItem, items_of

_PLACE = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)


class DeadLetter(msgspec.Struct, frozen=True):
    """One of them; ``at_s`` is when it was given up (Unix s)."""

    id: str
    user: UserId
    message_id: MessageId
    why: str
    at_s: float
    items: tuple[OutboxItem, ...]


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

        Can be repeated after a crash.
        """
        found = await self._link.call("XRANGE", keys.DEAD_LETTERS, letter, letter) if _PLACE.fullmatch(letter) else ()
        if not found:
            return False
        fields = found[0][1]
        uid = fields[b"u"].decode()
        own = (keys.user_index(uid), keys.outbox(uid), keys.revived(uid, letter))
        await self._link.script("outbox_revive", own, fields[b"items"])
        await self._outbox.wake_up([uid])
        await self._link.call("XDEL", keys.DEAD_LETTERS, letter)
        return True

    async def drop(self, letter: str) -> bool:
        """Forget a letter; False if there is none."""
        return bool(_PLACE.fullmatch(letter) and await self._link.call("XDEL", keys.DEAD_LETTERS, letter))


def _letter(place: bytes, fields: dict[bytes, bytes]) -> DeadLetter:
    return DeadLetter(
        id=place.decode(),
        user=fields[b"u"].decode(),
        message_id=fields[b"m"].decode(),
        why=fields[b"why"].decode(),
        at_s=int(place.partition(b"-")[0]) / 1000,
        items=items_of(fields[b"items"]),
    )
