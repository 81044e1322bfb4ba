"""Messages are stored in order, within bounds that nobody can use up for all others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, cast

import msgspec
import pytest

from bots.inbound.intake import Intake, IntakeQueue
from bots.tasks import cancel_and_wait
from bots.xmpp.archive import ArchivePage
from bots.xmpp.events import MessageReceived
from bots.xmpp.interface import XmppSessionLost
from service.clock import SystemClock
from service.errors import StoreUnavailable
from service.store.delivery.inbound_log import InboundMessage, UnansweredMessage
from tests.support.waiting import until_so


def said(jid: str, text: str = "list") -> MessageReceived:
    return MessageReceived(jid, f"{jid}/phone", "1", text, "", wants_receipt=False)


def test_no_server_fills_the_queue_with_addresses_that_it_invents() -> None:
    waiting = IntakeQueue()
    senders = [f"{number}@{number % 7}.invented.example" for number in range(12_000)]
    for jid in (*senders, "alice@home.example"):
        waiting.put(said(jid))
    assert [each.jid for each in waiting.take(20_000)] == [*senders[:5_000], "alice@home.example"]
    waiting.put(said("0@0.invented.example"))
    assert len(waiting) == 1, "what was taken makes room"


def test_one_person_fills_no_more_than_a_hundred_places_and_all_together_ten_thousand() -> None:
    waiting = IntakeQueue()
    for _ in range(150):
        waiting.put(said("alice@home.example"))
    assert len(waiting) == 100
    for number in range(20_000):
        waiting.put(said(f"{number}@{number % 7}.example{number % 5}.org"))
    assert len(waiting) == 10_000


class Scene:
    """An intake between a server with an archive, a store that may be away, and whoever answers."""

    address = "bot@localhost"
    is_account = True

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.connected.set()
        self.archive: list[MessageReceived] = []
        self.archive_answers = asyncio.Event()
        self.archive_error: Exception | None = None
        self.asked = 0
        self.store_is_away = False
        self.stored: list[str] = []
        self.desk = Memory()
        self.noted = 0

    # The link.

    async def read_archive(self, _link: object, _since_s: float) -> AsyncIterator[ArchivePage]:
        self.asked += 1
        await self.archive_answers.wait()
        if self.archive_error is not None:
            raise self.archive_error
        yield ArchivePage(frozenset(), (), tuple(self.archive))

    def idle_s(self) -> float:
        return 0.0

    # The store.

    async def caught_up_until_s(self, _address: str) -> float:
        return 1.0

    async def record_caught_up(self, _address: str, _until_s: float) -> None:
        self.noted += 1

    async def add(self, sentences: Sequence[InboundMessage]) -> list[bool]:
        if self.store_is_away:
            raise StoreUnavailable("away")
        texts = [msgspec.msgpack.decode(each.payload, type=MessageReceived).text for each in sentences]
        self.stored += texts
        return [True] * len(texts)

    async def read_unanswered(self, _uids: object) -> list[UnansweredMessage]:
        return []

    async def notify(self, _notices: object) -> None:
        """Nobody else is there."""

    # Who serves.

    async def select(self, uids: Iterable[str]) -> list[str]:
        return list(uids)

    def includes(self, _uid: str) -> bool:
        return True


class Memory:
    """A desk that keeps what it is to answer though the store has it not."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def hear(self, said: MessageReceived) -> None:
        self.heard.append(said.text)

    def read(self, _unanswered: object) -> None:
        """Answer what is stored: nothing here."""


@contextlib.asynccontextmanager
async def taking_in(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Intake]:
    monkeypatch.setattr("bots.inbound.intake.read_archive", scene.read_archive)
    monkeypatch.setattr("bots.inbound.intake.CHECKPOINT_INTERVAL_S", 0.01)
    it = cast("Any", scene)
    intake = Intake(it, it, it, chat_sessions=cast("Any", scene.desk), adhoc_sessions=it, clock=SystemClock())
    running = asyncio.create_task(intake._store_messages())
    try:
        yield intake
    finally:
        await cancel_and_wait(running)


async def test_what_the_archive_has_is_stored_before_what_is_said_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.archive = [said("alice@home.example", "first")]
    async with taking_in(scene, monkeypatch) as intake:
        intake.on_session_started()
        intake.on_message(said("alice@home.example", "second"))
        await until_so(lambda: scene.asked == 1, "the archive is asked")
        assert not scene.stored
        scene.archive_answers.set()
        await until_so(lambda: scene.stored == ["first", "second"], "both are stored, in order")
        await until_so(lambda: scene.noted > 1, "it is noted that all is stored")


@pytest.mark.parametrize("error", [XmppSessionLost("gone"), TimeoutError()])
async def test_without_the_archive_messages_are_stored_but_not_noted_as_all(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scene = Scene()
    scene.archive_error = error
    scene.archive_answers.set()
    async with taking_in(scene, monkeypatch) as intake:
        intake.on_session_started()
        intake.on_message(said("alice@home.example", "now"))
        await until_so(lambda: scene.stored == ["now"], "it is stored")
        await asyncio.sleep(0.05)
        assert not scene.noted
        scene.archive_error = None
        intake.on_session_started()
        await until_so(lambda: scene.noted > 1, "the next session catches up")
        assert scene.asked == 2


async def test_a_session_that_begins_while_the_archive_is_read_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    async with taking_in(scene, monkeypatch) as intake:
        intake.on_session_started()
        await until_so(lambda: scene.asked == 1, "the archive is asked")
        intake.on_session_started()
        intake.on_message(said("alice@home.example", "now"))
        scene.archive_error = XmppSessionLost("the first session is over")
        scene.archive_answers.set()
        await until_so(lambda: scene.asked == 2, "it is asked again")
        scene.archive_error = None
        await until_so(lambda: scene.stored == ["now"], "it goes on")


async def test_while_the_store_is_away_messages_are_answered_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    scene.is_account, scene.store_is_away = False, True
    async with taking_in(scene, monkeypatch) as intake:
        intake.on_session_started()
        intake.on_message(said("alice@home.example", "help"))
        await until_so(lambda: scene.desk.heard == ["help"], "it is answered")
        scene.store_is_away = False
        intake.on_message(said("alice@home.example", "list"))
        await until_so(lambda: scene.stored == ["list"], "it is stored")
