"""A process that stops while it sends a reply makes sure that the reply is not sent again."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from bots.cluster.partitions import AssignedUsers
from bots.sessions.reply_sender import ReplySender
from bots.xmpp.interface import XmppSender
from service.asyncio_tasks import cancel_and_wait
from service.model import UserId
from service.store.coordination.bot_messages import BotMessages
from service.store.delivery.inbound_log import EntryId, InboundLog, UnansweredMessage

MESSAGE = UserId("alice"), "1-0"


class _Server:
    """A server that takes its time to confirm what it was sent; and the store, which it outlives."""

    address = "bot@localhost"

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.connected.set()
        self.sent = asyncio.Event()
        self.confirmed = asyncio.Event()
        self.unanswered = {MESSAGE}

    async def send(self, _stanzas: Sequence[str]) -> None:
        self.sent.set()
        await self.confirmed.wait()

    async def record_reply(self, *_answer: Any) -> None:
        """Note it."""

    async def remove_answered(self, pairs: Sequence[tuple[UserId, EntryId]]) -> None:
        self.unanswered -= set(pairs)

    def includes(self, _uid: UserId) -> bool:
        return True

    def is_lease_valid(self) -> bool:
        return True


async def _leaving(server: _Server) -> "asyncio.Task[None]":
    """Return the end of a bot that was told to leave when it had written its answer."""
    sender = ReplySender(
        cast("InboundLog", server),
        cast("BotMessages", server),
        cast("XmppSender", server),
        cast("AssignedUsers", server),
    )
    saying = asyncio.create_task(sender.send(UnansweredMessage(*MESSAGE, b"", "bot@localhost", ("<message/>",))))
    await server.sent.wait()
    await cancel_and_wait(saying)
    return asyncio.create_task(sender.close())


async def test_a_reply_confirmed_during_shutdown_is_removed_from_the_log() -> None:
    server = _Server()
    leaving = await _leaving(server)
    server.confirmed.set()
    await leaving
    assert not server.unanswered


async def test_a_reply_not_confirmed_during_shutdown_stays_in_the_log(monkeypatch: Any) -> None:
    monkeypatch.setattr("bots.sessions.reply_sender.CLOSE_TIMEOUT_S", 0.01)
    server = _Server()
    await (await _leaving(server))
    assert server.unanswered
