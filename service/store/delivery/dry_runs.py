"""What the console asks the bot: what it would say. It answers without doing anything, nor telling anybody.

Only the bot that is connected takes questions; they wait in one list. Answers lie where those of requests lie.
"""

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from service.errors import NoWorker
from service.model import Channel, Entry
from service.store.client import keys
from service.store.client.connection import MAX_BLOCK_S, RedisRepository
from service.store.coordination.requests import ErrorReply, expect_reply, next_reply, send_reply

_WITHIN_S = 12.0
_KEPT_S = 60
_BELIEVED_S = 20


class DryRunRequest(msgspec.Struct, frozen=True, tag=True):
    """Say what this person would be answered if they wrote these commands, one after the other."""

    jid: str
    commands: tuple[str, ...]


class MessagePreviewRequest(msgspec.Struct, frozen=True, tag=True):
    """Write the message that would tell of an entry, as if it were a channel's news; the channel need not be there."""

    channel: Channel
    entry: Entry


class CommandPreview(msgspec.Struct, frozen=True):
    """A command, all messages that would answer it, and what would be done, a sentence each."""

    command: str
    replies: tuple[str, ...]
    effects: tuple[str, ...]


class DryRunReply(msgspec.Struct, frozen=True, tag=True):
    """What would be said."""

    lines: tuple[CommandPreview, ...]


class MessagePreviewReply(msgspec.Struct, frozen=True, tag=True):
    """The message."""

    text: str


BotReply = DryRunReply | MessagePreviewReply | ErrorReply
_ANSWER: Final[Any] = BotReply


class BotRequest(msgspec.Struct, frozen=True):
    """What is asked, and where to answer. After ``until_s`` (on Redis's clock, Unix s) nobody waits any more."""

    id: str
    body: DryRunRequest | MessagePreviewRequest
    until_s: float


class DryRunQueue(RedisRepository):
    """Ask the bot, and wait for its answer. Every method may raise :class:`service.errors.StoreUnavailable`."""

    async def dry_run(self, jid: str, commands: tuple[str, ...]) -> tuple[CommandPreview, ...]:
        """Return what a person would be answered. Raises what the bot met, or :class:`NoWorker`."""
        return expect_reply(await self._ask(DryRunRequest(jid, commands)), DryRunReply).lines

    async def preview_message(self, channel: Channel, latest: Sequence[Entry]) -> str:
        """Return the message that would tell of the first of a channel's ``latest`` entries; "" if there are none.

        Raises as :meth:`rehearse`.
        """
        if not latest:
            return ""
        return expect_reply(await self._ask(MessagePreviewRequest(channel, latest[0])), MessagePreviewReply).text

    async def next_request(self) -> BotRequest | None:
        """Wait for a question (bots); None if there is none for a while, or nobody waits for its answer any more."""
        await self._redis.call("SET", keys.BOT_AVAILABLE, 1, "EX", _BELIEVED_S)
        found = await self._redis.call_blocking("BLPOP", keys.BOT_REQUESTS, MAX_BLOCK_S)
        if not found:
            return None
        try:
            question = msgspec.msgpack.decode(found[1], type=BotRequest)
        except msgspec.MsgspecError:
            return None  # of another version
        return question if question.until_s > await self._now_s() else None

    async def reply(self, question: BotRequest, answer: BotReply) -> None:
        """Answer a question (bots)."""
        await send_reply(self._redis, question.id, answer)

    async def _ask(self, body: DryRunRequest | MessagePreviewRequest) -> object:
        if not await self._redis.call("EXISTS", keys.BOT_AVAILABLE):
            raise NoWorker("No bot is connected just now, and only the bot knows what it would say.")
        question = BotRequest(secrets.token_urlsafe(12), body, await self._now_s() + _WITHIN_S)
        packed = msgspec.msgpack.encode(question)
        await self._redis.call_many([("RPUSH", keys.BOT_REQUESTS, packed), ("EXPIRE", keys.BOT_REQUESTS, _KEPT_S)])
        answer = await next_reply(self._redis, question.id, time.monotonic() + _WITHIN_S, _ANSWER)
        if answer is None:
            raise NoWorker(f"The bot did not answer within {_WITHIN_S:.0f} s. Is one connected?")
        return answer

    async def _now_s(self) -> float:
        seconds, micros = await self._redis.call("TIME")
        return int(seconds) + int(micros) / 1e6
