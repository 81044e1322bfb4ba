"""The intake stores messages in order, after those in the archive; one sender cannot use up the limits of its queue."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from bots.dialogue.bot_services import BotServices
from bots.inbound.intake import Intake, IntakeQueue
from bots.xmpp.archive import ArchivePage
from bots.xmpp.events import MessageReceived
from bots.xmpp.interface import XmppSessionLost
from service.asyncio_tasks import cancel_and_wait
from service.clock import SystemClock
from service.errors import StoreUnavailable
from service.net.credential_vault import CredentialVault
from service.settings import Settings
from service.store.delivery.inbound_log import InboundMessage, UnansweredMessage
from tests.support.waiting import until_so


def message(jid: str, text: str = "list") -> MessageReceived:
    return MessageReceived(jid, f"{jid}/phone", "1", text, "", wants_receipt=False)


class Collaborators:
    """The collaborators of an intake: a server with an archive, a store that may be unavailable, and chat sessions."""

    address = "bot@localhost"
    is_account = True

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.connected.set()
        self.archive: list[MessageReceived] = []
        self.archive_may_respond = asyncio.Event()
        self.archive_error: Exception | None = None
        self.archive_reads = 0
        self.is_store_unavailable = False
        self.stored: list[str] = []
        self.chat_sessions = ChatSessions()
        self.checkpoints = 0

    # XMPP.

    async def read_archive(self, _link: object, _since_s: float) -> AsyncIterator[ArchivePage]:
        self.archive_reads += 1
        await self.archive_may_respond.wait()
        if self.archive_error is not None:
            raise self.archive_error
        yield ArchivePage(frozenset(), (), tuple(self.archive))

    def idle_s(self) -> float:
        return 0.0

    # Inbound log.

    async def caught_up_until_s(self, _address: str) -> float:
        return 1.0

    async def record_caught_up(self, _address: str, _until_s: float) -> None:
        self.checkpoints += 1

    async def add(self, sentences: Sequence[InboundMessage]) -> list[bool]:
        if self.is_store_unavailable:
            raise StoreUnavailable("unavailable")
        texts = [msgspec.msgpack.decode(each.payload, type=MessageReceived).text for each in sentences]
        self.stored += texts
        return [True] * len(texts)

    async def read_unanswered(self, _uids: object) -> list[UnansweredMessage]:
        return []

    async def notify(self, _notices: object) -> None:
        """Ignore notices, as there is no other bot."""

    # Assigned users.

    async def select(self, uids: Iterable[str]) -> list[str]:
        return list(uids)

    def includes(self, _uid: str) -> bool:
        return True


class ChatSessions:
    """Chat sessions that record the messages that are not in the store."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_message(self, said: MessageReceived) -> None:
        self.heard.append(said.text)

    def on_stored_messages(self, _unanswered: object) -> None:
        """Ignore stored messages."""


@contextlib.asynccontextmanager
async def running_intake(others: Collaborators, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Intake]:
    monkeypatch.setattr("bots.inbound.catch_up.read_archive", others.read_archive)
    monkeypatch.setattr("bots.inbound.catch_up.CHECKPOINT_INTERVAL_S", 0.01)
    fake = cast("Any", others)
    services = SimpleNamespace(
        store=SimpleNamespace(inbound_log=others, bot_messages=others),
        xmpp=others,
        assigned_users=others,
        clock=SystemClock(),
        vault=CredentialVault(Settings()),
    )
    intake = Intake(cast("BotServices", services), cast("Any", others.chat_sessions), fake)
    running = asyncio.create_task(intake._store_messages())
    try:
        yield intake
    finally:
        await cancel_and_wait(running)


async def test_archived_messages_are_stored_before_messages_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Collaborators()
    others.archive = [message("alice@home.example", "first")]
    async with running_intake(others, monkeypatch) as intake:
        intake.on_session_started()
        intake.on_message(message("alice@home.example", "second"))
        await until_so(lambda: others.archive_reads == 1, "the archive is read")
        assert not others.stored
        others.archive_may_respond.set()
        await until_so(lambda: others.stored == ["first", "second"], "both are stored in order")
        await until_so(lambda: others.checkpoints > 1, "a checkpoint is written")


@pytest.mark.parametrize("error", [XmppSessionLost("gone"), TimeoutError()])
async def test_without_the_archive_messages_are_stored_but_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    others = Collaborators()
    others.archive_error = error
    others.archive_may_respond.set()
    async with running_intake(others, monkeypatch) as intake:
        intake.on_session_started()
        intake.on_message(message("alice@home.example", "now"))
        await until_so(lambda: others.stored == ["now"], "the message is stored")
        await asyncio.sleep(0.05)
        assert not others.checkpoints
        others.archive_error = None
        intake.on_session_started()
        await until_so(lambda: others.checkpoints > 1, "the next session reads the archive")
        assert others.archive_reads == 2


async def test_a_new_session_reads_the_archive_again(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Collaborators()
    async with running_intake(others, monkeypatch) as intake:
        intake.on_session_started()
        await until_so(lambda: others.archive_reads == 1, "the archive is read")
        intake.on_session_started()
        intake.on_message(message("alice@home.example", "now"))
        others.archive_error = XmppSessionLost("the first session has ended")
        others.archive_may_respond.set()
        await until_so(lambda: others.archive_reads == 2, "the archive is read again")
        others.archive_error = None
        await until_so(lambda: others.stored == ["now"], "the message is stored")


async def test_while_redis_is_unavailable_messages_are_answered_without_storing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = Collaborators()
    others.is_account, others.is_store_unavailable = False, True
    async with running_intake(others, monkeypatch) as intake:
        intake.on_session_started()
        intake.on_message(message("alice@home.example", "help"))
        await until_so(lambda: others.chat_sessions.heard == ["help"], "the message is answered")
        others.is_store_unavailable = False
        intake.on_message(message("alice@home.example", "list"))
        await until_so(lambda: others.stored == ["list"], "the message is stored")


def test_the_queue_is_limited_per_site() -> None:
    queue = IntakeQueue()
    senders = [f"{number}@{number % 7}.invented.example" for number in range(12_000)]
    for jid in (*senders, "alice@home.example"):
        queue.put(message(jid))
    assert [each.jid for each in queue.take(20_000)] == [*senders[:5_000], "alice@home.example"]
    queue.put(message("0@0.invented.example"))
    assert len(queue) == 1, "messages that were taken make space"


def test_the_queue_is_limited_per_user_and_in_total() -> None:
    queue = IntakeQueue()
    for _ in range(150):
        queue.put(message("alice@home.example"))
    assert len(queue) == 100
    for number in range(20_000):
        queue.put(message(f"{number}@{number % 7}.example{number % 5}.org"))
    assert len(queue) == 10_000
