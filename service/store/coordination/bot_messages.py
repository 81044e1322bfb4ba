"""Messages between bot processes.

There are two kinds: notices about messages and commands from users, and stanzas that another process has to send
because it has the XMPP session for them.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.model import UserId
from service.store.client import keys
from service.store.client.redis_client import RedisRepository
from service.store.client.streams import append_command, newest_id, wait_for_entries

_ENTRIES_PER_READ: Final = 1_000
_STANZAS_TTL_S: Final = 86_400


class BotNotice(msgspec.Struct, frozen=True):
    """Tells all bot processes that a message or an ad-hoc command from the user ``uid`` has arrived.

    - ``adhoc_command``: the command, as serialised by the bots. It is empty for a message, because messages are
      stored in the inbound log.
    - ``session``: id of the XMPP session that received the command and has to send the reply; "" for a message.
    """

    uid: UserId
    adhoc_command: bytes = b""
    session: str = ""


class BotMessages(RedisRepository):
    """Passes notices and stanzas between bot processes. Every method may raise :class:`StoreUnavailable`."""

    async def notify(self, notices: Sequence[BotNotice]) -> None:
        """Send notices to all bot processes."""
        await self._redis.call_many(
            [
                append_command(keys.BOT_NOTICES, "u", each.uid, "o", each.adhoc_command, "v", each.session)
                for each in notices
            ]
        )

    async def newest_notice_id(self) -> str:
        """Return the id of the newest notice; "0-0" if there is none."""
        return await newest_id(self._redis, keys.BOT_NOTICES)

    async def read_notices(self, after: str) -> dict[str, BotNotice]:
        """Wait up to ``MAX_BLOCK_S`` seconds for notices after the one with the id ``after``.

        Return a mapping from the ids of the new notices to the notices; empty if none arrives in time.
        """
        return {
            ident: BotNotice(fields[b"u"].decode(), fields[b"o"], fields[b"v"].decode())
            for ident, fields in await wait_for_entries(self._redis, keys.BOT_NOTICES, after, _ENTRIES_PER_READ)
        }

    async def remove_notices(self, ids: Sequence[str]) -> None:
        """Delete the notices with these ids, because bots have handled them."""
        if ids:
            await self._redis.call("XDEL", keys.BOT_NOTICES, *ids)

    async def queue_stanzas(self, session: str, stanzas: Sequence[str]) -> None:
        """Queue stanzas for the XMPP session with the id ``session``. The bot process with this session sends them."""
        stream = keys.queued_stanzas(session)
        commands = [append_command(stream, "s", each) for each in stanzas]
        await self._redis.call_many([*commands, ("EXPIRE", stream, _STANZAS_TTL_S)])

    async def read_stanzas(self, session: str) -> dict[str, str]:
        """Wait up to ``MAX_BLOCK_S`` seconds for stanzas that the XMPP session with the id ``session`` has to send.

        Return a mapping from the stanzas' ids in the queue to the stanzas; empty if none arrives in time.
        """
        found = await wait_for_entries(self._redis, keys.queued_stanzas(session), "0", _ENTRIES_PER_READ)
        return {ident: fields[b"s"].decode() for ident, fields in found}

    async def remove_stanzas(self, session: str, ids: Sequence[str]) -> None:
        """Delete stanzas from an XMPP session's queue, because the session has sent them.

        ``ids`` contains the ids of the stanzas in the queue.
        """
        if ids:
            await self._redis.call("XDEL", keys.queued_stanzas(session), *ids)
