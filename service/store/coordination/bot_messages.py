"""Messages between bot processes: notices about users' messages, and stanzas that another XMPP session has to send."""

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
    """A notice from one bot process to the others, with one of two meanings.

    - A message of the user ``user`` was stored. ``adhoc_command`` is empty.
    - The user has sent the ad-hoc command ``adhoc_command``, as the bots serialize it. The XMPP session with the id
      ``session`` has to reply.
    """

    uid: UserId
    adhoc_command: bytes = b""
    session: str = ""


class BotMessages(RedisRepository):
    """Sends notices and stanzas between bot processes. Every method may raise :class:`StoreUnavailable`."""

    async def notify(self, notices: Sequence[BotNotice]) -> None:
        """Send notices to the other bots."""
        await self._redis.call_many(
            [
                append_command(keys.BOT_NOTICES, "u", each.uid, "o", each.adhoc_command, "v", each.session)
                for each in notices
            ]
        )

    async def newest_notice_id(self) -> str:
        """Return the id of the last notice sent."""
        return await newest_id(self._redis, keys.BOT_NOTICES)

    async def read_notices(self, after: str) -> dict[str, BotNotice]:
        """Wait up to ``MAX_BLOCK_S`` seconds for notices after the notice with the id ``after``; return them by id."""
        return {
            ident: BotNotice(fields[b"u"].decode(), fields[b"o"], fields[b"v"].decode())
            for ident, fields in await wait_for_entries(self._redis, keys.BOT_NOTICES, after, _ENTRIES_PER_READ)
        }

    async def remove_notices(self, ids: Sequence[str]) -> None:
        """Remove notices that bots have handled."""
        if ids:
            await self._redis.call("XDEL", keys.BOT_NOTICES, *ids)

    async def queue_stanzas(self, session: str, stanzas: Sequence[str]) -> None:
        """Queue stanzas to be sent by the bot that has the XMPP session ``session`` (an id)."""
        stream = keys.queued_stanzas(session)
        commands = [append_command(stream, "s", each) for each in stanzas]
        await self._redis.call_many([*commands, ("EXPIRE", stream, _STANZAS_TTL_S)])

    async def read_stanzas(self, session: str) -> dict[str, str]:
        """Wait up to ``MAX_BLOCK_S`` seconds for stanzas that an XMPP session has to send; return them by id."""
        found = await wait_for_entries(self._redis, keys.queued_stanzas(session), "0", _ENTRIES_PER_READ)
        return {ident: fields[b"s"].decode() for ident, fields in found}

    async def remove_stanzas(self, session: str, ids: Sequence[str]) -> None:
        """Remove stanzas that a session has sent. ``ids`` are the stanzas' ids."""
        if ids:
            await self._redis.call("XDEL", keys.queued_stanzas(session), *ids)
