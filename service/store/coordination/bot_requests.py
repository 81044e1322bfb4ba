"""Requests from the console to a connected bot, to try out commands or to preview a message.

A bot that handles such a request changes nothing and sends nothing to users. Requests wait in a single list, from which
any connected bot takes the next one. Replies are sent in the same way as those of workers
(:mod:`service.store.coordination.worker_requests`).
"""

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from service.errors import NoWorker
from service.model import Channel, Entry
from service.store.client import keys
from service.store.client.redis_client import MAX_BLOCK_S, RedisRepository
from service.store.coordination.worker_requests import ErrorReply, expect_reply, next_reply, send_reply

_TIMEOUT_S = 12.0
_REQUESTS_TTL_S = 60
_AVAILABLE_TTL_S = 20


class DryRunRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a bot how it would reply if the user ``jid`` sent ``commands``, one after another."""

    jid: str
    commands: tuple[str, ...]


class MessagePreviewRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks a bot for the text of the message in which it would deliver ``entry``, an entry of ``channel``.

    The channel need not exist.
    """

    channel: Channel
    entry: Entry


class CommandPreview(msgspec.Struct, frozen=True):
    """What would happen if a user sent a command.

    - ``replies``: the messages that the bot would send in reply.
    - ``effects``: what the command would change, in one sentence for each effect.
    """

    command: str
    replies: tuple[str, ...]
    effects: tuple[str, ...]


class DryRunReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a :class:`DryRunRequest`: one preview for each command, in order."""

    lines: tuple[CommandPreview, ...]


class MessagePreviewReply(msgspec.Struct, frozen=True, tag=True):
    """Reply to a :class:`MessagePreviewRequest`: the text of the message."""

    text: str


BotReply = DryRunReply | MessagePreviewReply | ErrorReply
_REPLY_TYPES: Final[Any] = BotReply


class BotRequest(msgspec.Struct, frozen=True):
    """A request to a bot. The bot appends the reply to a Redis list named after the request's ``id``.

    After ``until_s`` (Unix s, Redis's clock), the sender no longer waits for the reply.
    """

    id: str
    body: DryRunRequest | MessagePreviewRequest
    until_s: float


class BotRequests(RedisRepository):
    """Passes requests from the console to connected bots, and the replies back to the console.

    Every method may raise :class:`StoreUnavailable`.
    """

    async def dry_run(self, jid: str, commands: tuple[str, ...]) -> tuple[CommandPreview, ...]:
        """Return what would happen if the user ``jid`` sent ``commands``: one preview for each command, in order.

        Raises :class:`NoWorker` if no bot replies. If a bot replies with an error, that error is raised.
        """
        return expect_reply(await self._send(DryRunRequest(jid, commands)), DryRunReply).lines

    async def preview_message(self, channel: Channel, latest: Sequence[Entry]) -> str:
        """Return the text of the message in which a bot would deliver the newest entry of a channel.

        ``latest`` contains the channel's latest entries, newest first. If it is empty, the result is "". Raises the
        same errors as :meth:`dry_run`.
        """
        if not latest:
            return ""
        return expect_reply(await self._send(MessagePreviewRequest(channel, latest[0])), MessagePreviewReply).text

    async def next_request(self) -> BotRequest | None:
        """Wait a few seconds for the next request; return None if none arrives, or if it is invalid or has expired.

        Bots call this method. Each call also tells the console that a bot is available.
        """
        await self._redis.call("SET", keys.BOT_AVAILABLE, 1, "EX", _AVAILABLE_TTL_S)
        popped = await self._redis.call_blocking("BLPOP", keys.BOT_REQUESTS, MAX_BLOCK_S)
        if not popped:
            return None
        try:
            request = msgspec.msgpack.decode(popped[1], type=BotRequest)
        except msgspec.MsgspecError:
            return None  # sent by another version of Coronet
        return request if request.until_s > await self._redis.time_s() else None

    async def reply(self, request: BotRequest, reply: BotReply) -> None:
        """Send the reply to a request. Bots call this method."""
        await send_reply(self._redis, request.id, reply)

    async def _send(self, body: DryRunRequest | MessagePreviewRequest) -> object:
        """Send a request to any connected bot, wait for the reply, and return the reply.

        Raises :class:`NoWorker` if no bot is connected, or none replies in time.
        """
        if not await self._redis.call("EXISTS", keys.BOT_AVAILABLE):
            raise NoWorker("No bot is connected just now, and only the bot knows what it would say.")
        request = BotRequest(secrets.token_urlsafe(12), body, await self._redis.time_s() + _TIMEOUT_S)
        packed = msgspec.msgpack.encode(request)
        await self._redis.call_many(
            [("RPUSH", keys.BOT_REQUESTS, packed), ("EXPIRE", keys.BOT_REQUESTS, _REQUESTS_TTL_S)]
        )
        reply = await next_reply(self._redis, request.id, time.monotonic() + _TIMEOUT_S, _REPLY_TYPES)
        if reply is None:
            raise NoWorker(f"The bot did not answer within {_TIMEOUT_S:.0f} s. Is one connected?")
        return reply
